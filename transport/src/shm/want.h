// SPDX-License-Identifier: Apache-2.0
//
// Back-pressure. A receiver keeps messages for which no receive is posted yet, but not without
// bound. When those of one channel take kMostKept, it holds the channel (Credit::holds): what is
// not in the ring stays with its sender, and the send does not end. Now the receiver says for every
// receive that is or gets posted what it wants, and each want lets one message pass. So memory is
// bounded, and still no message whose receive is posted waits behind others. When half of what was
// kept has been taken, the channel is let go.
//
//   receiver: kept > kMostKept ──► holds odd ──► want (for each receive posted) ──► … ──► holds
//   even sender:                         withholds, lets pass what is wanted sends all
//
// A sender notices when it looks how far the receiver is, at the latest when its ring is full, so
// that many messages more may come.
#pragma once

#include "matcher.h"
#include "shm/segment.h"
#include "xylem/transport/transport.h"

#include <cstdint>

namespace xylem::transport::shm {

/// Bytes of messages without a receive, of one channel, with kNodeBytes for each.
inline constexpr std::uint64_t kMostKept = 1 << 20;
/// What an announced message that fits into no slot counts for besides: those that a sender may
/// announce unasked, a quarter of all streams, make a hold, and wanted ones get the other numbers.
inline constexpr std::uint64_t kAnnouncedBytes = kMostKept / (kStreams / 4);

constexpr bool is_hold(std::uint64_t holds) noexcept { return holds % 2 == 1; }

/// What the receiver of a channel that it holds waits for; said without the bits that check a tag.
struct Want {
  Tag tag = 0;
  Tag mask = kExactMatch;
};

/// A want that has come by the incoming channel `channel`.
struct HeardWant {
  std::uint32_t channel = 0;
  Want want;
  std::uint64_t holds = 0;  ///< Credit::holds when it was said.
};

}  // namespace xylem::transport::shm
