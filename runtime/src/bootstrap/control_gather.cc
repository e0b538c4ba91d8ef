// SPDX-License-Identifier: Apache-2.0
//
// The control plane's gather: Bruck's rounds over the connections. Data is sent in pieces, so that
// a large value for a slow reader is not queued as a whole.
#include "bootstrap/bruck_gather.h"
#include "bootstrap/control_network.h"
#include "xylem/base/check.h"

#include <fmt/format.h>

#include <algorithm>

namespace xylem::runtime {
namespace {

/// No further piece is queued on a connection while this many bytes are queued.
constexpr std::size_t kQueueTarget = std::size_t{1} << 20;
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
  const std::uint32_t number = gathers_.begin();
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
  const std::uint8_t round = gather.round();
  const GatherInbox::Incoming& incoming = gathers_.incoming(number, round);
  for (;;) {
    while (!all_queued && to->is_open() && to->queued() < kQueueTarget) {
      const ByteSpan piece = left.first(std::min(left.size(), GatherFrame::kLargestPiece));
      left = left.subspan(piece.size());
      all_queued = left.empty();
      to->push(GatherFrame{number, round, all_queued, piece});
    }
    // This check precedes drive(), which blocks: all pieces may have arrived already.
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
  gathers_.forget(number, round);
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

}  // namespace xylem::runtime
