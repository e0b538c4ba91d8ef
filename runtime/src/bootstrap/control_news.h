// SPDX-License-Identifier: Apache-2.0
//
// ControlNews: which floods have been heard. A rank passes on only what is new to it. Deaths and
// goodbyes are new once per rank. A message or an invitation is new if its number exceeds the last
// one of its rank.
#pragma once

#include <cstdint>
#include <vector>

namespace xylem::runtime {

enum class Presence : std::uint8_t { here, left, lost };

class ControlNews {
 public:
  explicit ControlNews(std::uint32_t size) : ranks_(size) {}

  Presence presence(std::uint32_t rank) const { return ranks_[rank].presence; }
  /// Each of these notes a piece of news, and returns whether it is new.
  bool end(std::uint32_t rank, Presence how) {
    if (ranks_[rank].presence != Presence::here) return false;
    ranks_[rank].presence = how;
    return true;
  }
  bool is_new_message(std::uint32_t origin, std::uint32_t number) {
    return advance(ranks_[origin].message, number);
  }
  bool is_new_invitation(std::uint32_t inviter, std::uint32_t number) {
    return advance(ranks_[inviter].invitation, number);
  }

 private:
  /// What was heard of one rank.
  struct Heard {
    Presence presence = Presence::here;
    std::uint32_t message = 0;     ///< The number of its last message.
    std::uint32_t invitation = 0;  ///< The number of its last flooded invitation.
  };

  static bool advance(std::uint32_t& last, std::uint32_t number) {
    if (number <= last) return false;
    last = number;
    return true;
  }

  std::vector<Heard> ranks_;
};

}  // namespace xylem::runtime
