// SPDX-License-Identifier: Apache-2.0
//
// HeldWakes: delays the wake-ups of sleeping peers on this host while this rank waits patiently
// (progress.h). Peers are then woken only after a turn that found nothing to do, or after
// kTurnsInARow turns, so that they find more to do when they wake. Only the token holder may use
// it.
#pragma once

#include "xylem/transport/host_peers.h"

#include <cstdint>

namespace xylem::runtime {

class HeldWakes {
 public:
  /// `peers` outlives the last turn.
  void open(transport::HostPeers& peers) noexcept { peers_ = &peers; }
  /// Sets whether this rank waits patiently. When it stops, delayed wake-ups are sent, and later
  /// wake-ups are not delayed.
  void set_patient(bool is_patient) noexcept {
    is_patient_ = is_patient;
    if (!is_patient) peers_->hold_wakes(false);
  }
  /// Call begin_turn() before each turn, and end_turn() after it with the result of the turn.
  void begin_turn() const noexcept {
    if (is_patient_) peers_->hold_wakes(true);
  }
  void end_turn(unsigned done) noexcept {
    if (!is_patient_ || (done > 0 && ++turns_ < kTurnsInARow)) return;
    turns_ = 0;
    peers_->hold_wakes(false);
  }

 private:
  /// This many turns take about half a millisecond if all of them move data.
  static constexpr std::uint32_t kTurnsInARow = 16;

  transport::HostPeers* peers_ = nullptr;
  bool is_patient_ = false;
  std::uint32_t turns_ = 0;  ///< Turns since peers were last woken.
};

}  // namespace xylem::runtime
