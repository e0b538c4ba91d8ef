// SPDX-License-Identifier: Apache-2.0
//
// Phases: builds plans whose steps run one after the other, in list order, without a progress
// engine. Ranks report their progress to each other by signals, and each phase has a channel of its
// own.
//
// A signal may be implemented as a flag in place of a counter. In that case a peer must have
// consumed a signal before the next signal on the same channel is sent. Two rules ensure this. A
// rank that signals a peer on channel 0 waits in the same call for a later channel of that peer. A
// rank that signals a peer on another channel has waited before, in the same call, for an earlier
// channel of that peer.
#pragma once

#include "xylem/collectives/builder.h"

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace xylem::collectives {

/// The plan of one rank. Each step depends on the step before it.
class Phases {
 public:
  Phases(std::string_view name,
         const Shape& shape,
         std::uint32_t rank,
         std::uint32_t blocks,
         std::uint32_t channels)
      : plan_(name, shape, rank, blocks, channels), shape_(shape), rank_(rank) {}

  void copy(Chunks target, Chunks source) { follow(plan_.copy(target, source)); }
  void reduce(Chunks target, const std::vector<Chunks>& sources) {
    follow(plan_.reduce(target, sources, true));
  }
  void put(std::uint32_t peer, Chunks target, Chunks source) {
    follow(plan_.put(peer, target, source));
  }
  void signal(std::uint32_t peer, std::uint8_t channel) { follow(plan_.signal(peer, channel)); }
  void wait(std::uint32_t peer, std::uint8_t channel) { follow(plan_.wait(peer, 1, channel)); }
  void signal_all(std::uint8_t channel) {
    for_others([&](std::uint32_t peer) { signal(peer, channel); });
  }
  void wait_all(std::uint8_t channel) {
    for_others([&](std::uint32_t peer) { wait(peer, channel); });
  }
  /// Calls visit(peer) for all other ranks, beginning with the next rank. So the ranks do not all
  /// read from the same peer at the same time.
  template <typename Visit>
  void for_others(Visit&& visit) const {
    for (std::uint32_t d = 1; d < shape_.ranks; ++d) visit((rank_ + d) % shape_.ranks);
  }
  Schedule take() { return std::move(plan_).take(); }

 private:
  void follow(StepId step) {
    if (last_ != kNone) plan_.after(step, last_);
    last_ = step;
  }

  Builder plan_;
  const Shape shape_;
  const std::uint32_t rank_;
  StepId last_ = kNone;
};

}  // namespace xylem::collectives
