// SPDX-License-Identifier: Apache-2.0
//
// HeldWakes: how long a patient rank lets sleeping peers of its host sleep. While it is patient, it
// wakes them only after a turn that found nothing to do, or after some turns in a row, so that they
// find more to do when they wake. For the token holder only.
#pragma once

#include "xylem/transport/host_peers.h"

#include <cstdint>

namespace xylem::runtime {

class HeldWakes {
 public:
  /// `peers` outlives the last turn.
  void open(transport::HostPeers& peers) noexcept { peers_ = &peers; }
  /// Whether the rank is patient from now on. If not, peers are woken at once.
  void set_patient(bool is_patient) noexcept {
    is_patient_ = is_patient;
    if (!is_patient) peers_->hold_wakes(false);
  }
  /// Call these before and after each turn; `done` is what the turn returned.
  void begin_turn() const noexcept {
    if (is_patient_) peers_->hold_wakes(true);
  }
  void end_turn(unsigned done) noexcept {
    if (!is_patient_ || (done > 0 && ++turns_ < kTurnsInARow)) return;
    turns_ = 0;
    peers_->hold_wakes(false);
  }

 private:
  /// So many turns take about half a millisecond if all move data.
  static constexpr std::uint32_t kTurnsInARow = 16;

  transport::HostPeers* peers_ = nullptr;
  bool is_patient_ = false;
  std::uint32_t turns_ = 0;  ///< Patient turns since peers were woken last.
};

}  // namespace xylem::runtime
