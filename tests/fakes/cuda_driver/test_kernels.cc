// SPDX-License-Identifier: Apache-2.0
#include "fakes/cuda_driver/test_kernels.h"

#include "cuda/kernels/host_kernel.h"

#include <algorithm>
#include <iterator>

namespace xylem::fake_cuda::test {
namespace {

using execution::cuda::HostKernel;
using execution::cuda::HostPlace;

void add(void** parameters, const HostPlace& place) {
  const auto& arguments = *static_cast<const TestArguments*>(parameters[0]);
  for (std::uint64_t i = place.first; i < arguments.count; i += place.stride) {
    const auto* source = static_cast<const std::uint32_t*>(place.reach(arguments.source + i));
    auto* target = static_cast<std::uint32_t*>(place.reach(arguments.target + i));
    *target += *source;
  }
}

/// A test launches this kernel without the necessary order. The thread sanitizer would report the
/// race.
__attribute__((no_sanitize("thread"))) void copy(void** parameters, const HostPlace& place) {
  const auto& arguments = *static_cast<const TestArguments*>(parameters[0]);
  for (std::uint64_t i = place.first; i < arguments.count; i += place.stride) {
    const auto* source = static_cast<const std::uint32_t*>(place.reach(arguments.source + i));
    auto* target = static_cast<std::uint32_t*>(place.reach(arguments.target + i));
    *target = *source;
  }
}

constexpr HostKernel kKernels[] = {
    {"test_add", sizeof(TestArguments), add},
    {"test_copy", sizeof(TestArguments), copy},
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
