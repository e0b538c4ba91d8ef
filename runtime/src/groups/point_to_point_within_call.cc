// SPDX-License-Identifier: Apache-2.0
//
// PointToPoint: sends and receives that complete within the call, between ranks that share memory.
// A call that completes before it returns needs no operation. All other calls become operations,
// which begin in start().
#include "calls/calls.h"
#include "calls/work_access.h"
#include "groups/point_to_point.h"
#include "xylem/base/copy.h"
#include "xylem/execution/tag.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace xylem::runtime {

using collectives::kNone;
using execution::group_tag;
using execution::TagKind;
using transport::ReserveResult;

namespace {

/// Writes a header, and behind it the payload of a small message.
void write_message(std::byte* to,
                   const MessageHeader& header,
                   const void* payload,
                   std::uint64_t bytes) noexcept {
  std::memcpy(to, &header, sizeof header);
  copy_bytes(to + sizeof header, payload, bytes);
}

}  // namespace

std::optional<Work> PointToPoint::try_send(const ConstBuffer& buffer,
                                           std::uint32_t to,
                                           std::uint32_t tag) {
  if (to == spec_.rank || buffer.memory.kind != MemoryKind::host || pairs_.empty()) {
    return std::nullopt;
  }
  Pair& pair = pairs_[to];
  if (pair.waiting != nullptr || pair.has_left) return std::nullopt;
  polling_.note_send();
  const MessageHeader header = next_header(to, buffer.count, buffer.type, tag);
  const Sent sent = send_at_once(to, header, {buffer.data, buffer.bytes(), {}});
  if (sent == Sent::nothing) return std::nullopt;
  ++pair.sent;
  if (sent == Sent::all) return WorkAccess::ended(spec_.own_world_rank());
  Operation& operation = group_.begin_operation();
  set_send(operation.call, buffer, to, tag);
  Work work = WorkAccess::of(operation);
  send_body(operation, header);
  return work;
}

/// Sends as much of a message as there is room for in the shared memory that the peer reads.
PointToPoint::Sent PointToPoint::send_at_once(std::uint32_t to,
                                              const MessageHeader& header,
                                              const transport::ConstRegion& body) {
  const Link& link = link_to(to);
  if (link.view_bytes == 0) return Sent::nothing;
  const transport::Tag tag = group_tag(TagKind::message_header, spec_.slots[to]);
  const std::uint64_t bytes = body_bytes(header);
  const bool is_small = bytes <= kInlineMessage;
  const std::uint64_t payload = is_small ? bytes : 0;
  const std::uint64_t whole = sizeof header + payload;
  std::array<std::byte, 256> message;
  if (whole <= std::min<std::uint64_t>(link.inline_bytes, message.size())) {
    write_message(message.data(), header, body.data, payload);
    if (!link.transport->send_inline(link.endpoint, tag, message.data(), whole)) {
      return Sent::nothing;
    }
  } else {
    transport::Reservation slot;
    if (link.views->reserve({&link.endpoint, 1}, whole, slot) != ReserveResult::reserved) {
      return Sent::nothing;
    }
    write_message(slot.memory, header, body.data, payload);
    link.views->commit(link.endpoint, tag);
  }
  if (is_small) return Sent::all;
  const bool is_on_host = body.memory.kind == MemoryKind::host;
  return is_on_host && try_send_body(to, header, body.data) ? Sent::all : Sent::header;
}

/// Sends the body of a message, if it fits into a slot of shared memory and a slot is free.
bool PointToPoint::try_send_body(std::uint32_t to, const MessageHeader& header, const void* data) {
  const Link& link = link_to(to);
  const std::uint64_t bytes = body_bytes(header);
  transport::Reservation slot;
  if (bytes > link.view_bytes ||
      link.views->reserve({&link.endpoint, 1}, bytes, slot) != ReserveResult::reserved) {
    return false;
  }
  link.views->fill(data, {});
  link.views->commit(link.endpoint, tag_of_body(header, to));
  return true;
}

std::optional<Work> PointToPoint::try_recv(const Buffer& buffer,
                                           std::uint32_t from,
                                           std::uint32_t tag) {
  if (from == spec_.rank || buffer.memory.kind != MemoryKind::host || pairs_.empty()) {
    return std::nullopt;
  }
  // Earlier messages or earlier receives may have to be matched first.
  if (queue_.has_receives() || queue_.has_arrived() || headers_.has_early(from)) {
    return std::nullopt;
  }
  const Link& link = link_to(from);
  if (link.view_bytes == 0) return std::nullopt;
  transport::View message;
  const transport::Tag header_tag = group_tag(TagKind::message_header, spec_.slot());
  const bool has_arrived = polling_.await_message([&] {
    return link.views->take_view(link.endpoint, header_tag, transport::kAnySize, message);
  });
  if (!has_arrived) return std::nullopt;
  const auto header = headers_.next_of(message, from);
  const bool fits = header && header->tag == tag && header->count <= buffer.count &&
                    header->type == static_cast<std::uint8_t>(buffer.type);
  if (!fits) {
    headers_.keep(message, link);
    return std::nullopt;
  }
  const std::uint64_t bytes = body_bytes(*header);
  const bool is_small = bytes <= kInlineMessage;
  if (is_small) copy_bytes(buffer.data, message.data + sizeof *header, bytes);
  link.views->release(message);
  headers_.skip(from);
  if (!is_small && !try_receive_body(link, *header, buffer.data)) {
    Operation& operation = group_.begin_operation();
    set_recv(operation.call, buffer, from, tag);
    Work work = WorkAccess::of(operation);
    match(operation, *header);
    receive_body(operation, *header);
    return work;
  }
  return WorkAccess::ended(spec_.world_ranks[from], header->count);
}

bool PointToPoint::poll_headers(unsigned& found) {
  constexpr unsigned kMost = 16;  // Headers per turn. Other sources of work wait meanwhile.
  for (unsigned looked = 0; looked < kMost && queue_.has_receives(); ++looked) {
    const std::uint32_t from = queue_.first_receive().call.peer;
    if (from == kNone || from == spec_.rank || link_to(from).view_bytes == 0) return true;
    const Link link = link_to(from);
    transport::View view;
    const transport::Tag tag = group_tag(TagKind::message_header, spec_.slot());
    if (!link.views->take_view(link.endpoint, tag, transport::kAnySize, view)) return true;
    ++found;
    const auto header = headers_.next_of(view, from);
    if (!header) {
      headers_.keep(view, link);
      return true;
    }
    headers_.skip(from);
    accept(*header, view.data + sizeof *header);
    link.views->release(view);
  }
  is_polling_ = queue_.has_receives();
  return is_polling_;
}

/// Receives the body of a message, if it fits into a slot of shared memory and arrives while this
/// thread polls for it.
bool PointToPoint::try_receive_body(const Link& link, const MessageHeader& header, void* data) {
  const std::uint64_t bytes = body_bytes(header);
  if (bytes > link.view_bytes) return false;
  transport::View body;
  const transport::Tag tag = tag_of_body(header, spec_.rank);
  const bool has_arrived =
      polling_.await_body([&] { return link.views->take_view(link.endpoint, tag, bytes, body); });
  if (!has_arrived) return false;
  copy_bytes(data, body.data, bytes);
  link.views->release(body);
  return true;
}

}  // namespace xylem::runtime
