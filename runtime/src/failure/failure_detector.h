// SPDX-License-Identifier: Apache-2.0
//
// FailureDetector: records which ranks of the job have died or left, and which are suspected. When
// a wire fails, the rank at its other end is only suspected. The group that uses the wire fails
// half a second later, or 3 s later if the peer has closed the wire. If the control plane reports
// in this time that the rank died, the group fails with the death, which explains more. If it
// reports that the rank left in good order, the suspicion may be dropped (Suspicion::Leaver).
#pragma once

#include "progress/token.h"
#include "xylem/base/clock.h"
#include "xylem/base/status.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace xylem::runtime {

class Group;

/// A group that may have lost a rank.
struct Suspicion {
  /// Whether a rank that has left the job in good order still counts as lost for this suspicion.
  enum class Leaver : std::uint8_t { counts, is_excused };

  std::weak_ptr<Group> group;
  Status why;  ///< Its peer() is the suspected rank.
  Leaver leaver = Leaver::counts;
  Clock::time_point since{};
};

/// Records which ranks of the job are lost or have left. All ranks are world ranks.
class FailureDetector {
 public:
  explicit FailureDetector(std::uint32_t size)
      : lost_(size), left_(size, Clock::time_point::max()) {}

  void note_lost(Token /*token*/, std::uint32_t rank, Status why) { lost_[rank] = std::move(why); }
  void note_left(Token /*token*/, std::uint32_t rank) { left_[rank] = Clock::now(); }
  /// How the rank was lost; OK if it was not lost.
  const Status& lost(Token /*token*/, std::uint32_t rank) const noexcept { return lost_[rank]; }
  /// When the rank left in good order; far in the future if it has not.
  Clock::time_point left_at(Token /*token*/, std::uint32_t rank) const noexcept {
    return left_[rank];
  }
  bool has_left(Token /*token*/, std::uint32_t rank) const noexcept {
    return left_[rank] != Clock::time_point::max();
  }

  void suspect(Token token, std::weak_ptr<Group> group, Status why, Suspicion::Leaver leaver);
  /// Removes and returns the suspicions that are old enough to be announced. Suspicions with
  /// Leaver::is_excused are dropped if the rank has left.
  std::vector<Suspicion> take_confirmed(Token token, Clock::time_point now);
  /// Whether there are any suspicions. Any thread may call this.
  bool has_suspicions() const noexcept { return has_suspicions_.load(std::memory_order_relaxed); }

 private:
  std::vector<Status> lost_;             ///< lost_[r]: how rank r was lost; OK while it lives.
  std::vector<Clock::time_point> left_;  ///< left_[r]: when rank r left in good order.
  std::vector<Suspicion> suspicions_;
  std::atomic<bool> has_suspicions_{false};
};

}  // namespace xylem::runtime
