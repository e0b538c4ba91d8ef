// SPDX-License-Identifier: Apache-2.0
//
// The control plane's gather: Bruck's rounds over the connections. Data is sent in pieces, so that
// neither a large value nor data for a slow reader is queued as a whole.
#include "bootstrap/bruck_gather.h"
#include "bootstrap/control_network.h"
#include "xylem/base/check.h"

#include <fmt/format.h>

#include <algorithm>

namespace xylem::runtime {
namespace {

/// How many bytes are queued on a connection at a time.
constexpr std::size_t kQueueTarget = std::size_t{1} << 20;
/// The largest number of bytes that may arrive in one round of a gather. More is an error.
constexpr std::size_t kMostGathered = std::size_t{4} << 30;
/// How often deadlines are checked while waiting.
constexpr int kTickMs = 100;

Status late(const BruckGather& gather) {
  const std::uint32_t rank = gather.receive_from();
  if (gather.round() == 0) {
    return failure(Code::timed_out, fmt::format("rank {} sent nothing to gather in time", rank),
                   rank);
  }
  return failure(
      Code::timed_out,
      fmt::format("rank {} is late in round {} of a gather: it, or a rank that it waits for, "
                  "stands still",
                  rank, gather.round()));
}

}  // namespace

Result<std::vector<ByteVector>> ControlNetwork::all_gather(ByteSpan mine, Deadline deadline) {
  auto values = gather(mine, deadline);
  if (!values) report_failure(values.status());
  return values;
}

Result<std::vector<ByteVector>> ControlNetwork::gather(ByteSpan mine, Deadline deadline) {
  XYLEM_CHECK(!is_serving_);
  XYLEM_TRY(failure_);
  const std::uint32_t number = gathers_++;
  BruckGather gather(self_.rank, self_.size, mine);
  while (!gather.is_done()) XYLEM_TRY(exchange(gather, number, deadline));
  XYLEM_TRY(wait_until_sent(deadline));
  return gather.take_result();
}

Status ControlNetwork::exchange(BruckGather& gather, std::uint32_t number, Deadline deadline) {
  ControlLink* const to = find_link(gather.send_to());
  const ControlLink* const from = find_link(gather.receive_from());
  XYLEM_CHECK(to != nullptr && from != nullptr, gather.send_to(), gather.receive_from());
  const ByteVector outgoing = gather.outgoing();
  ByteSpan left(outgoing);
  bool all_queued = false;
  Incoming& incoming = incoming_[{number, gather.round()}];
  for (;;) {
    while (!all_queued && to->is_open() && to->queued() < kQueueTarget) {
      const ByteSpan piece = left.first(std::min(left.size(), GatherFrame::kLargestPiece));
      left = left.subspan(piece.size());
      all_queued = left.empty();
      to->push(GatherFrame{number, gather.round(), all_queued, piece});
    }
    // This is checked before waiting, since everything may have arrived already.
    if (all_queued && incoming.is_complete) break;
    const ControlLink* const gone = !all_queued && !to->is_open()               ? to
                                    : !incoming.is_complete && !from->is_open() ? from
                                                                                : nullptr;
    if (gone != nullptr) {
      return failure(Code::peer_lost, fmt::format("rank {} left during the start", gone->rank()),
                     gone->rank());
    }
    if (deadline.passed()) return late(gather);
    XYLEM_TRY(drive(std::min(deadline.left_ms(), kTickMs)));
  }
  XYLEM_TRY(gather.take(incoming.bytes));
  incoming_.erase({number, static_cast<std::uint8_t>(gather.round() - 1)});
  return {};
}

Status ControlNetwork::wait_until_sent(Deadline deadline) {
  for (;;) {
    flush_links();
    const auto waits = std::ranges::find_if(
        links_, [](const auto& link) { return link->is_open() && link->queued() > 0; });
    if (waits == links_.end()) return is_serving_ ? Status() : failure_;
    if (deadline.passed()) {
      return failure(Code::timed_out, fmt::format("rank {} does not read", (*waits)->rank()),
                     (*waits)->rank());
    }
    XYLEM_TRY(drive(std::min(deadline.left_ms(), kTickMs)));
  }
}

Status ControlNetwork::hear_gather(const ControlLink& link, const GatherFrame& frame) {
  // A neighbour may have finished this gather and be in the next gather. It cannot be further
  // ahead, since it needs this rank for that.
  const bool expected =
      !is_serving_ && frame.gather + 1 >= gathers_ && frame.gather <= gathers_ &&
      frame.round < 32 &&
      link.rank() == (self_.rank + (std::uint64_t{1} << frame.round)) % self_.size;
  if (!expected) return failure(Code::internal, "it sent a gather that was not expected");
  Incoming& incoming = incoming_[{frame.gather, frame.round}];
  if (incoming.is_complete || incoming.bytes.size() + frame.bytes.size() > kMostGathered) {
    return failure(Code::internal, "it sent more to gather than it may");
  }
  incoming.bytes.insert(incoming.bytes.end(), frame.bytes.begin(), frame.bytes.end());
  incoming.is_complete = frame.is_last;
  return {};
}

}  // namespace xylem::runtime
