// SPDX-License-Identifier: Apache-2.0
//
// GatherInbox: what the neighbours of a rank have sent it for its gathers (bruck_gather.h). A
// neighbour may already send for a later round, or for the next gather.
#pragma once

#include "bootstrap/control_frame.h"
#include "bootstrap/wire_format.h"
#include "xylem/base/status.h"

#include <cstdint>
#include <map>
#include <utility>

namespace xylem::runtime {

class GatherInbox {
 public:
  GatherInbox(std::uint32_t rank, std::uint32_t size) : rank_(rank), size_(size) {}

  /// What has arrived of one round of a gather.
  struct Incoming {
    ByteVector bytes;
    bool is_complete = false;
  };

  /// Begins the next gather, and returns its number.
  std::uint32_t begin() noexcept { return begun_++; }
  /// Valid until forget() for this round.
  const Incoming& incoming(std::uint32_t gather, std::uint8_t round) {
    return rounds_[{gather, round}];
  }
  void forget(std::uint32_t gather, std::uint8_t round) { rounds_.erase({gather, round}); }
  /// Takes a piece that a neighbour has sent. Fails if that neighbour has nothing to send now.
  Status add(std::uint32_t from, const GatherFrame& frame);

 private:
  std::uint32_t rank_, size_;
  std::uint32_t begun_ = 0;
  /// The key is the number of the gather and of its round.
  std::map<std::pair<std::uint32_t, std::uint8_t>, Incoming> rounds_;
};

}  // namespace xylem::runtime
