// SPDX-License-Identifier: Apache-2.0
//
// The device kernels compiled for the host (host_kernel.h).
#include "cuda/kernels/arguments.h"
#include "cuda/kernels/element.h"
#include "cuda/kernels/exchange.h"
#include "cuda/kernels/host_kernel.h"
#include "cuda/kernels/reduce.h"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>

namespace xylem::execution::cuda {
namespace {

// The body of a kernel gets only host addresses. A block that computes no elements translates no
// addresses, since they may be null in a launch of no elements.

bool is_idle(const HostBlock& block, std::uint64_t count) {
  return block.index * block.threads >= count;
}

/// Whether the kernel must do nothing, because the stop word is set. Then it must not access any
/// other memory, which may have been freed.
bool is_stopped_at(const std::uint32_t* stop, const HostBlock& block) {
  return stop != nullptr && is_stopped(static_cast<const std::uint32_t*>(block.reach(stop)));
}

template <class Element, class Op>
void run_reduce(void** parameters, const HostBlock& block) {
  const auto& given = *static_cast<const ReduceArguments*>(parameters[0]);
  if (is_idle(block, given.count) || is_stopped_at(given.stop, block)) return;
  ReduceArguments reached;
  reached.target = block.reach(given.target);
  reached.count = given.count;
  reached.source_count = given.source_count;
  reached.divisor = given.divisor;
  for (std::uint32_t k = 0; k < given.source_count; ++k) {
    reached.sources[k] = block.reach(given.sources[k]);
  }
  block.each_place([&](auto first, auto stride) {
    reduce_n<Element, Op>(reached, {first, stride});
  });
}

template <class Element>
void run_scale(void** parameters, const HostBlock& block) {
  ScaleArguments arguments = *static_cast<const ScaleArguments*>(parameters[0]);
  if (is_idle(block, arguments.count) || is_stopped_at(arguments.stop, block)) return;
  arguments.stop = nullptr;
  arguments.target = block.reach(arguments.target);
  arguments.source = block.reach(arguments.source);
  block.each_place([&](auto first, auto stride) { scale<Element>(arguments, {first, stride}); });
}

/// A block of an exchange (exchange.h).
class ExchangeBlock {
 public:
  explicit ExchangeBlock(const HostBlock& block) noexcept : block_(block) {}

  template <class F>
  void each(F&& f) const {
    for (std::uint32_t k = 0; k < block_.threads; ++k) f(k);
  }
  template <class F>
  void compute(F&& f) const {
    block_.each_place([&](auto first, auto stride) { f(Place{first, stride}); });
  }
  bool is_first() const noexcept { return block_.is_first; }
  std::uint32_t blocks() const noexcept { return static_cast<std::uint32_t>(block_.blocks); }
  template <class T>
  T* at(T* address) const {
    return address == nullptr ? nullptr : static_cast<T*>(block_.reach(address));
  }
  template <class T>
  T* at_target(T* address) const {
    return static_cast<T*>(block_.reach_target(address, sizeof(T), false));
  }
  template <class Element>
  void reach(const ExchangeArguments& a, BlockState& state) const {
    for (std::uint32_t k = 0; k < operand_count(a); ++k) {
      const std::uint32_t part = part_of(a, k);
      const std::uint64_t count = elements_in(a, part, state.staged[part]);
      void*& pointer = state.pointers[k];
      if (is_idle(block_, count)) continue;
      pointer = k < a.part_count * a.target_count
                    ? block_.reach_target(pointer, count * sizeof(typename Element::Stored), true)
                    : block_.reach(pointer);
    }
  }
  void fence() const { block_.fence(); }
  std::uint32_t await(const std::uint32_t* flag) const {
    const std::uint32_t value = block_.await(flag);
    return value == kSignalled ? kSignalled : kReleased;
  }
  void clear(std::uint32_t* flag) const { block_.clear(flag); }
  template <class T>
  void set(T* word, T value) const {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
  }
  std::uint32_t add(std::uint32_t* word, std::uint32_t value) const {
    return __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);
  }

 private:
  const HostBlock& block_;
};

template <class Element, class Op>
void run_exchange(void** parameters, const HostBlock& block) {
  BlockState state{};
  exchange<Element, Op>(*static_cast<const ExchangeArguments*>(parameters[0]), ExchangeBlock(block),
                        state);
}

bool waits(void** parameters) {
  const Handshake& h = static_cast<const ExchangeArguments*>(parameters[0])->handshake;
  return (h.awaited[0] | h.awaited[1]) != 0;
}

template <class Arguments>
constexpr auto kWaits = std::is_same_v<Arguments, ExchangeArguments> ? &waits : nullptr;

#define XYLEM_KERNEL(name, Arguments, Element, run) \
  {"xylem_" #name, sizeof(Arguments), run, kWaits<Arguments>},
constexpr HostKernel kKernels[] = {
#include "cuda/kernels/kernels.inc"
};

}  // namespace

extern "C" const HostKernel* xylem_host_kernels(std::size_t* count) {
  *count = std::size(kKernels);
  return kKernels;
}

}  // namespace xylem::execution::cuda
