// SPDX-License-Identifier: Apache-2.0
//
// The body of xylem_exchange: what one block of a launch does. A Block runs functions in all
// threads of a block (kernels.cu for a device, host_kernels.cc for the host):
//
// - each(f) runs f(k) in thread k, for all k. It returns when all threads have returned.
// - compute(f) runs f(place) in all threads.
// - is_first() is true in the block that publishes the begins. blocks() is the number of blocks.
// - at(address) is the address at which the block accesses memory.
// - at_target(address) is the same, if the block writes there.
// - reach(a, state) translates the addresses of all operands.
// - fence(): others see what the thread has written or seen before it, before they see what the
//   thread writes after it.
// - await(flag) blocks until the flag is not kClear, and returns its value.
// - clear(flag) writes kClear to a flag of this device.
// - set(word, value) writes a word, of which others see either the old or the new value.
// - add(word, value) adds to a word of this device, and returns its old value.
#pragma once

#include "cuda/kernels/arguments.h"
#include "cuda/kernels/reduce.h"

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#define XYLEM_BLOCK __device__ __forceinline__
#else
#define XYLEM_BLOCK inline
#endif

namespace xylem::execution::cuda {

/// Whether operand k is a buffer of another rank, which has published the address (PeerCall).
XYLEM_DEVICE bool is_of_peer(const ExchangeArguments& a, std::uint32_t k) {
  return a.operands[k].buffer != ExchangeArguments::kHere;
}

/// The call that the rank of operand k has published.
XYLEM_DEVICE const PeerCall* peer_call_of(const ExchangeArguments& a, std::uint32_t k) {
  return a.peer_calls + a.operands[k].buffer / 2;
}

XYLEM_DEVICE bool is_of_call(const PeerCall& peer_call,
                             const ExchangeArguments& a,
                             std::uint32_t part) {
  return (peer_call.call | 1) == (call_of(a.call, a.counts[part]) | 1);
}

XYLEM_DEVICE bool is_staged(const PeerCall& peer_call) { return (peer_call.call & 1) != 0; }

XYLEM_DEVICE std::uint32_t operand_count(const ExchangeArguments& a) {
  return a.part_count * (a.target_count + a.source_count);
}

/// The part to which operand k belongs.
XYLEM_DEVICE std::uint32_t part_of(const ExchangeArguments& a, std::uint32_t k) {
  const std::uint32_t targets = a.part_count * a.target_count;
  return k < targets ? k / a.target_count : (k - targets) / a.source_count;
}

/// The address of operand k. `peer_call` is the published call of its rank, or null if the operand
/// is a buffer of this rank.
XYLEM_DEVICE void* address_of(const ExchangeArguments& a,
                              std::uint32_t k,
                              const PeerCall* peer_call) {
  const auto& operand = a.operands[k];
  std::uint64_t address = operand.place;
  if (peer_call != nullptr)
    address = operand.buffer % 2 == 0 ? peer_call->input : peer_call->output;
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}

/// The number of elements that the launch computes of a part.
XYLEM_DEVICE std::uint64_t elements_in(const ExchangeArguments& a,
                                       std::uint32_t part,
                                       bool is_any_staged) {
  const std::uint64_t count = a.counts[part];
  if (!is_any_staged) return a.begin == 0 ? count : 0;
  if (a.begin >= count) return 0;
  return count - a.begin < a.slice ? count - a.begin : a.slice;
}

/// pointers[k] is the address of operand k; staged[i] is true if part i is computed slice by slice.
template <class Element, class Op>
XYLEM_DEVICE void exchange_n(const ExchangeArguments& a,
                             void* const* pointers,
                             const bool* staged,
                             const Place& place) {
  void* const* const sources = pointers + a.part_count * a.target_count;
  for (std::uint32_t part = 0; part < a.part_count; ++part) {
    reduce_into<Element, Op>(ManyTargets{pointers + part * a.target_count, a.target_count},
                             sources + part * a.source_count, a.source_count, a.divisor,
                             elements_in(a, part, staged[part]), place);
  }
}

/// What the threads of a block share.
struct BlockState {
  void* pointers[kMostOperands];  ///< The address of each operand.
  bool staged[kMostParts];        ///< Whether each part is computed slice by slice.
  bool runs;                      ///< False if the launch was stopped.
  bool is_right;                  ///< False if a rank has published another call.
  bool is_last;                   ///< The block is the last of its launch.
};

/// Added to Handshake::ended by a block that was stopped, in addition to 1.
inline constexpr std::uint32_t kStoppedBlock = 1U << 16;

XYLEM_BLOCK bool is_awaited(const Handshake& h, std::uint32_t channel, std::uint32_t rank) {
  return rank < 32 && (h.awaited[channel] >> rank & 1) != 0;
}

/// Waits for the flag of `rank`, if the launch waits for it.
template <class Block>
XYLEM_BLOCK void await(const Handshake& h,
                       std::uint32_t channel,
                       std::uint32_t rank,
                       const Block& block,
                       BlockState& state) {
  if (!state.runs || !is_awaited(h, channel, rank)) return;
  if (block.await(block.at(h.own_flags[channel] + rank)) == kReleased) state.runs = false;
  block.fence();
}

template <class Block>
XYLEM_BLOCK void begin(const Handshake::Begin& begin, const Block& block) {
  if (begin.peer_call != nullptr) {
    volatile PeerCall& published = *block.at_target(begin.peer_call);
    published.input = begin.own.input;
    published.output = begin.own.output;
    published.call = begin.own.call;
  }
  block.fence();
  block.set(block.at(begin.flag), kSignalled);
}

/// Finds the address of operand k.
template <class Block>
XYLEM_BLOCK void find(const ExchangeArguments& a,
                      std::uint32_t k,
                      const Block& block,
                      BlockState& state) {
  const PeerCall* const peer_call = is_of_peer(a, k) ? block.at(peer_call_of(a, k)) : nullptr;
  state.pointers[k] = address_of(a, k, peer_call);
  if (peer_call == nullptr) return;
  if (!is_of_call(*peer_call, a, part_of(a, k))) {
    state.is_right = false;
    auto* const mismatch = block.at(a.mismatch);
    if (*const_cast<const volatile std::uint64_t*>(mismatch) == 0) {
      block.set(mismatch, mismatch_of(a.number, a.operands[k].buffer / 2));
    }
  }
  if (is_staged(*peer_call)) state.staged[part_of(a, k)] = true;
}

/// Ends the handshake, in the last block of the launch.
template <class Block>
XYLEM_BLOCK void end(const Handshake& h, const Block& block, BlockState& state) {
  block.each([&](std::uint32_t) { block.fence(); });
  block.each([&](std::uint32_t k) {
    if (k > 0) return;
    const std::uint32_t before = block.add(block.at(h.ended), state.runs ? 1 : 1 + kStoppedBlock);
    state.is_last = before % kStoppedBlock == block.blocks() - 1;
    if (before >= kStoppedBlock) state.runs = false;
    if (state.is_last) block.set(block.at(h.ended), 0U);
  });
  if (!state.is_last) return;
  block.each([&](std::uint32_t k) {
    // A peer may set the flag again as soon as it has seen the flag in `ends`.
    if (state.runs && is_awaited(h, 0, k)) block.clear(block.at(h.own_flags[0] + k));
  });
  block.each([&](std::uint32_t k) {
    if (!state.runs || k >= h.end_count) return;
    block.fence();
    block.set(block.at(h.ends[k]), kSignalled);
  });
  block.each([&](std::uint32_t k) {
    await(h, 1, k, block, state);
    if (state.runs && is_awaited(h, 1, k)) block.clear(block.at(h.own_flags[1] + k));
  });
  block.each([&](std::uint32_t k) {
    for (std::uint32_t w = 0; k == 0 && w < h.write_count; ++w) {
      block.fence();
      block.set(block.at(h.writes[w].word), h.writes[w].value);
    }
  });
}

template <class Element, class Op, class Block>
XYLEM_BLOCK void exchange(const ExchangeArguments& a, const Block& block, BlockState& state) {
  const Handshake& h = a.handshake;
  block.each([&](std::uint32_t k) {
    if (k < kMostParts) state.staged[k] = a.is_sliced;
    if (k > 0) return;
    state.runs = !is_stopped(block.at(a.stop));
    state.is_right = true;
  });
  if (h.begin_count > 0 && block.is_first()) {
    block.each([&](std::uint32_t k) {
      if (state.runs && k < h.begin_count) begin(h.begins[k], block);
    });
  }
  if (h.awaited[0] != 0) {
    block.each([&](std::uint32_t k) { await(h, 0, k, block, state); });
  }
  block.each([&](std::uint32_t k) {
    if (state.runs && k < operand_count(a)) find(a, k, block, state);
  });
  if (state.runs && state.is_right) {
    block.template reach<Element>(a, state);
    block.compute([&](const Place& place) {
      exchange_n<Element, Op>(a, state.pointers, state.staged, place);
    });
  }
  if ((h.end_count | h.write_count | h.awaited[0] | h.awaited[1]) != 0) end(h, block, state);
}

}  // namespace xylem::execution::cuda
