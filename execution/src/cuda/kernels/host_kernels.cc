// SPDX-License-Identifier: Apache-2.0
//
// The device kernels compiled for the host (host_kernel.h).
#include "cuda/kernels/arguments.h"
#include "cuda/kernels/element.h"
#include "cuda/kernels/host_kernel.h"
#include "cuda/kernels/reduce.h"

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace xylem::execution::cuda {
namespace {

// A kernel's body sees the host's addresses only. A thread that has no share touches no memory, so
// that addresses are not translated, which may be null in a launch of no elements.

/// Whether the kernel must do nothing. Then it reaches no other memory, which may be gone.
bool is_stopped_at(const std::uint32_t* stop, const HostPlace& place) {
  return stop != nullptr && is_stopped(static_cast<const std::uint32_t*>(place.reach(stop)));
}

template <class Element, class Op>
void run_reduce(void** parameters, const HostPlace& place) {
  const auto& given = *static_cast<const ReduceArguments*>(parameters[0]);
  if (place.first >= given.count || is_stopped_at(given.stop, place)) return;
  ReduceArguments reached;
  reached.target = place.reach(given.target);
  reached.count = given.count;
  reached.source_count = given.source_count;
  reached.divisor = given.divisor;
  for (std::uint32_t k = 0; k < given.source_count; ++k) {
    reached.sources[k] = place.reach(given.sources[k]);
  }
  reduce_n<Element, Op>(reached, {place.first, place.stride});
}

template <class Element>
void run_scale(void** parameters, const HostPlace& place) {
  ScaleArguments arguments = *static_cast<const ScaleArguments*>(parameters[0]);
  if (place.first >= arguments.count || is_stopped_at(arguments.stop, place)) return;
  arguments.stop = nullptr;
  arguments.target = place.reach(arguments.target);
  arguments.source = place.reach(arguments.source);
  scale<Element>(arguments, {place.first, place.stride});
}

void run_signal(void** parameters, const HostPlace& place) {
  SignalArguments arguments = *static_cast<const SignalArguments*>(parameters[0]);
  if (place.first >= arguments.count || is_stopped_at(arguments.stop, place)) return;
  arguments.stop = nullptr;
  // Flags that this thread does not set are not reached.
  for (std::uint64_t i = place.first; i < arguments.count; i += place.stride) {
    arguments.flags[i] = static_cast<std::uint32_t*>(place.reach(arguments.flags[i]));
  }
  signal(arguments, {place.first, place.stride});
}

#define XYLEM_REDUCE(op, Op, type, Element) \
  {"xylem_reduce_" #op "_" #type, sizeof(ReduceArguments), &run_reduce<Element, Op>},
#define XYLEM_SCALE(type, Element) \
  {"xylem_scale_" #type, sizeof(ScaleArguments), &run_scale<Element>},
constexpr HostKernel kKernels[] = {
#include "cuda/kernels/kernels.inc"
    {"xylem_signal", sizeof(SignalArguments), &run_signal},
};

}  // namespace

extern "C" const HostKernel* xylem_host_kernels(std::size_t* count) {
  *count = std::size(kKernels);
  return kKernels;
}

}  // namespace xylem::execution::cuda
