// SPDX-License-Identifier: Apache-2.0
//
// ControlNews: which flooded frames this rank has received, since a rank forwards only frames that
// are new to it. The loss or the leaving of a rank is new if neither was received before. A message
// or an invitation is new if its number exceeds all earlier numbers of the same origin. A topic is
// new if no message of it was sent or forwarded for a while.
#pragma once

#include "bootstrap/control_plane.h"
#include "xylem/base/clock.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

namespace xylem::runtime {

enum class Presence : std::uint8_t { here, left, lost };

class ControlNews {
 public:
  explicit ControlNews(std::uint32_t size) : ranks_(size) {}

  Presence presence(std::uint32_t rank) const { return ranks_[rank].presence; }
  /// end(), record_message() and record_invitation() each record a frame, and return whether it is
  /// new.
  bool end(std::uint32_t rank, Presence how) {
    if (ranks_[rank].presence != Presence::here) return false;
    ranks_[rank].presence = how;
    has_any_ended_ = true;
    return true;
  }
  /// Whether a rank has left or was lost.
  bool has_any_ended() const noexcept { return has_any_ended_; }
  bool record_message(std::uint32_t origin, std::uint32_t number) {
    return advance(ranks_[origin].message, number);
  }
  bool record_invitation(std::uint32_t inviter, std::uint32_t number) {
    return advance(ranks_[inviter].invitation, number);
  }
  bool record_topic(std::uint64_t topic, Clock::time_point now) {
    if (topic == ControlPlane::kNoTopic) return true;
    while (!topics_.empty() && now - topics_.front().since > ControlPlane::kSameTopic)
      topics_.pop_front();
    if (std::ranges::find(topics_, topic, &Topic::topic) != topics_.end()) return false;
    topics_.push_back({topic, now});
    return true;
  }

 private:
  /// What this rank has received about another rank.
  struct RankNews {
    Presence presence = Presence::here;
    std::uint32_t message = 0;     ///< The number of the rank's last message.
    std::uint32_t invitation = 0;  ///< The number of the rank's last flooded invitation.
  };

  struct Topic {
    std::uint64_t topic;
    Clock::time_point since;
  };

  static bool advance(std::uint32_t& last, std::uint32_t number) {
    if (number <= last) return false;
    last = number;
    return true;
  }

  std::vector<RankNews> ranks_;
  bool has_any_ended_ = false;
  std::deque<Topic> topics_;  ///< Oldest first.
};

}  // namespace xylem::runtime
