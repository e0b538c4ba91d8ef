// SPDX-License-Identifier: Apache-2.0
#include "fakes/cuda_driver/test_kernels.h"

#include "cuda/kernels/host_kernel.h"

#include <algorithm>
#include <iterator>

namespace xylem::fake_cuda::test {
namespace {

using execution::cuda::HostBlock;
using execution::cuda::HostKernel;

/// Calls f(target, source) for each element of the block.
template <class F>
void each_element(void** parameters, const HostBlock& block, F&& f) {
  const auto& arguments = *static_cast<const TestArguments*>(parameters[0]);
  block.each_place([&](std::uint64_t first, std::uint64_t stride) {
    for (std::uint64_t i = first; i < arguments.count; i += stride) {
      f(static_cast<std::uint32_t*>(block.reach(arguments.target + i)),
        static_cast<const std::uint32_t*>(block.reach(arguments.source + i)));
    }
  });
}

void add(void** parameters, const HostBlock& block) {
  each_element(parameters, block, [](auto* target, const auto* source) { *target += *source; });
}

/// A test launches this kernel without the necessary order. The thread sanitizer would report the
/// race.
__attribute__((no_sanitize("thread"))) void copy_one(std::uint32_t* target,
                                                     const std::uint32_t* source) {
  *target = *source;
}

void copy(void** parameters, const HostBlock& block) { each_element(parameters, block, copy_one); }

void put(void** parameters, const HostBlock& block) {
  const auto& arguments = *static_cast<const TestArguments*>(parameters[0]);
  auto* const seen = static_cast<std::uint32_t*>(block.reach(arguments.source));
  const auto look = [&] { return *static_cast<std::uint32_t*>(block.reach(arguments.target)); };
  *static_cast<std::uint32_t*>(block.reach_target(arguments.target, sizeof(std::uint32_t), true)) =
      1;
  seen[0] = look();
  block.fence();
  seen[1] = look();
  if (arguments.count != 2) return;
  block.await(seen + 1);
  look();
}

constexpr HostKernel kKernels[] = {
    {"test_add", sizeof(TestArguments), add},
    {"test_copy", sizeof(TestArguments), copy},
    {"test_put", sizeof(TestArguments), put},
};

}  // namespace
}  // namespace xylem::fake_cuda::test

namespace xylem::execution::cuda {

extern "C" __attribute__((visibility("default"))) const HostKernel* xylem_host_kernels(
    std::size_t* count) {
  *count = std::size(fake_cuda::test::kKernels);
  return fake_cuda::test::kKernels;
}

}  // namespace xylem::execution::cuda
