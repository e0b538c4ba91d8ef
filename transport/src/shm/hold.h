// SPDX-License-Identifier: Apache-2.0
//
// Back-pressure. A receiver keeps messages for which no receive is posted yet, up to a limit. When
// the kept messages of one channel exceed kMostKept, the receiver puts the channel on hold
// (Credit::holds): messages that are not in the ring stay at their sender, and their sends do not
// complete. During a hold the receiver requests the message of every receive that is posted, and
// for each request the sender sends one message. So memory is bounded, and yet a message whose
// receive is posted never waits behind others. The hold ends when the kept messages have shrunk to
// half of kMostKept.
//
//   receiver: kept > kMostKept ──► holds odd ──► request, for each receive ──► holds even
//   sender:                        withholds ──► sends what is requested ─────► sends all
//
// The sender notices a hold when it checks the receiver's progress, at the latest when its ring is
// full. Until then it may send as many further messages as fit into the ring.
#pragma once

#include "matcher.h"
#include "shm/segment.h"
#include "xylem/transport/transport.h"

#include <cstdint>

namespace xylem::transport::shm {

/// The most bytes of messages without a receive that the receiver keeps for one channel before a
/// hold starts. Each message counts as its size plus kNodeBytes.
inline constexpr std::uint64_t kMostKept = 1 << 20;
/// Additional weight of an announced message that does not fit into a slot. Unless messages are
/// requested, a sender may use only a quarter of all stream ids for such messages. If the receiver
/// keeps that many of them, a hold starts, so the other ids remain for requested messages.
inline constexpr std::uint64_t kAnnouncedBytes = kMostKept / (kStreams / 4);

constexpr bool is_hold(std::uint64_t holds) noexcept { return holds % 2 == 1; }

/// The tag and mask of a receive that waits for a message of a channel on hold. They are sent
/// without the check bits of the tag.
struct Request {
  Tag tag = 0;
  Tag mask = kExactMatch;
};

/// A request that has arrived on the incoming channel `channel`.
struct PeerRequest {
  std::uint32_t channel = 0;
  Request request;
  std::uint64_t holds = 0;  ///< The receiver's Credit::holds when it sent the request.
};

}  // namespace xylem::transport::shm
