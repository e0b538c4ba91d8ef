// SPDX-License-Identifier: Apache-2.0
//
// GatherInbox: the data of gathers (bruck_gather.h) that neighbours have sent to this rank. A
// neighbour may already be sending data of a later round, or of the next gather.
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
  /// The data that have arrived for a round. The reference is valid until forget() for the same
  /// round.
  const Incoming& incoming(std::uint32_t gather, std::uint8_t round) {
    return rounds_[{gather, round}];
  }
  void forget(std::uint32_t gather, std::uint8_t round) { rounds_.erase({gather, round}); }
  /// Stores a piece that rank `from` has sent. Fails if `from` cannot be sending this piece now, or
  /// if the round has too many bytes.
  Status add(std::uint32_t from, const GatherFrame& frame);

 private:
  std::uint32_t rank_, size_;
  std::uint32_t begun_ = 0;
  /// The key is the number of the gather and of its round.
  std::map<std::pair<std::uint32_t, std::uint8_t>, Incoming> rounds_;
};

}  // namespace xylem::runtime
