// SPDX-License-Identifier: Apache-2.0
//
// The device kernels compiled for the host (host_kernel.h).
#include "cuda/kernels/arguments.h"
#include "cuda/kernels/element.h"
#include "cuda/kernels/host_kernel.h"
#include "cuda/kernels/reduce.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace xylem::execution::cuda {
namespace {

// The body of a kernel gets only host addresses. A thread that computes no elements translates no
// addresses, since they may be null in a launch of no elements.

/// Whether the kernel must do nothing, because the stop word is set. Then it must not access any
/// other memory, which may have been freed.
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

template <typename T>
T* reached(T* address, const HostPlace& place) {
  return static_cast<T*>(place.reach(address));
}

/// True in the thread of a launch that ends last.
bool is_last_thread(std::uint32_t* ended, const HostPlace& place) {
  if (__atomic_add_fetch(ended, 1, __ATOMIC_ACQ_REL) != place.stride) return false;
  __atomic_store_n(ended, 0, __ATOMIC_RELAXED);
  return true;
}

/// Sets pointers[k] to the host address of operand k if this thread computes elements of its part,
/// and staged[i] as exchange_n() expects. False if a rank has published another call.
bool find_operands(const ExchangeArguments& a,
                   const HostPlace& place,
                   void** pointers,
                   bool* staged) {
  const PeerCall* peer_call[kMostOperands] = {};
  std::fill_n(staged, kMostParts, a.is_sliced);
  for (std::uint32_t k = 0; k < operand_count(a); ++k) {
    if (!is_of_peer(a, k)) continue;
    peer_call[k] = reached(peer_call_of(a, k), place);
    if (!is_of_call(*peer_call[k], a, part_of(a, k))) {
      std::uint64_t none = 0;
      __atomic_compare_exchange_n(reached(a.mismatch, place), &none,
                                  mismatch_of(a.number, a.operands[k].buffer / 2), false,
                                  __ATOMIC_RELAXED, __ATOMIC_RELAXED);
      return false;
    }
    if (is_staged(*peer_call[k])) staged[part_of(a, k)] = true;
  }
  for (std::uint32_t k = 0; k < operand_count(a); ++k) {
    const std::uint32_t part = part_of(a, k);
    if (place.first >= elements_in(a, part, staged[part])) continue;
    pointers[k] = place.reach(address_of(a, k, peer_call[k]));
  }
  return true;
}

template <class Element, class Op>
void run_exchange(void** parameters, const HostPlace& place) {
  const auto& a = *static_cast<const ExchangeArguments*>(parameters[0]);
  if (is_stopped_at(a.stop, place)) return;
  void* pointers[kMostOperands] = {};
  bool staged[kMostParts] = {};
  if (find_operands(a, place, pointers, staged)) {
    exchange_n<Element, Op>(a, pointers, staged, {place.first, place.stride});
  }
  if (a.flag_count == 0 || !is_last_thread(reached(a.ended, place), place)) return;
  for (std::uint32_t i = 0; i < a.flag_count; ++i) set_flag(reached(a.flags[i], place));
}

void run_signal(void** parameters, const HostPlace& place) {
  SignalArguments arguments = *static_cast<const SignalArguments*>(parameters[0]);
  if (place.first >= arguments.count || is_stopped_at(arguments.stop, place)) return;
  arguments.stop = nullptr;
  // Only the addresses that this thread accesses are translated.
  for (std::uint64_t i = place.first; i < arguments.count; i += place.stride) {
    arguments.flags[i] = reached(arguments.flags[i], place);
    if (arguments.peer_calls[i] != nullptr)
      arguments.peer_calls[i] = reached(arguments.peer_calls[i], place);
  }
  signal(arguments, {place.first, place.stride});
}

#define XYLEM_KERNEL(name, Arguments, Element, run) {"xylem_" #name, sizeof(Arguments), run},
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
