// SPDX-License-Identifier: Apache-2.0
//
// PointToPoint: sends and receives that are done within the call, between ranks that share memory.
// A call that has ended when it returns needs no operation. All other calls go through start().
#include "calls/calls.h"
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
using transport::Room;

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
  note_send();
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
    if (link.views->reserve({&link.endpoint, 1}, whole, slot) != Room::given) {
      return Sent::nothing;
    }
    write_message(slot.memory, header, body.data, payload);
    link.views->commit(link.endpoint, tag);
  }
  if (is_small) return Sent::all;
  const bool is_on_host = body.memory.kind == MemoryKind::host;
  return is_on_host && try_send_body(to, header, body.data) ? Sent::all : Sent::header;
}

/// Sends the body of a message if it fits into a slot and a slot is free.
bool PointToPoint::try_send_body(std::uint32_t to, const MessageHeader& header, const void* data) {
  const Link& link = link_to(to);
  const std::uint64_t bytes = body_bytes(header);
  transport::Reservation slot;
  if (bytes > link.view_bytes ||
      link.views->reserve({&link.endpoint, 1}, bytes, slot) != Room::given) {
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
  // Other messages or receives come first, or may come first.
  if (receives_ != nullptr || !unexpected_.empty() || !pairs_[from].early.empty()) {
    return std::nullopt;
  }
  const Link& link = link_to(from);
  if (link.view_bytes == 0) return std::nullopt;
  // The message is not looked for if it comes only after a send of this rank (see `patience_`).
  const auto message =
      receives_first_
          ? std::nullopt
          : take_next(link, group_tag(TagKind::message_header, spec_.slot()), transport::kAnySize);
  has_missed_ = !message;
  if (!message) return std::nullopt;
  const auto header = next_of(*message, from);
  const bool fits = header && header->tag == tag && header->count <= buffer.count &&
                    header->type == static_cast<std::uint8_t>(buffer.type);
  if (!fits) {
    keep(*message, link);
    return std::nullopt;
  }
  const std::uint64_t bytes = body_bytes(*header);
  const bool is_small = bytes <= kInlineMessage;
  if (is_small) copy_bytes(buffer.data, message->data + sizeof *header, bytes);
  link.views->release(*message);
  ++pairs_[from].expected;
  if (!is_small && !try_receive_body(link, *header, buffer.data)) {
    Operation& operation = group_.begin_operation();
    set_recv(operation.call, buffer, from, tag);
    Work work = WorkAccess::of(operation);
    meet(operation, *header);
    receive_body(operation, *header);
    return work;
  }
  return WorkAccess::ended(spec_.world_ranks[from], header->count);
}

/// The header of a message, if the message is well-formed and is the next one expected from
/// `source`.
std::optional<MessageHeader> PointToPoint::next_of(const transport::View& message,
                                                   std::uint32_t source) const noexcept {
  if (message.bytes < sizeof(MessageHeader)) return std::nullopt;
  MessageHeader header;
  std::memcpy(&header, message.data, sizeof header);
  if (header.group != spec_.uid || header.source != source || header.type >= kDataTypeCount ||
      header.number != pairs_[source].expected) {
    return std::nullopt;
  }
  const std::uint64_t bytes = body_bytes(header);
  const std::uint64_t payload = bytes <= kInlineMessage ? bytes : 0;
  return message.bytes == sizeof header + payload ? std::optional(header) : std::nullopt;
}

bool PointToPoint::look(unsigned& found) {
  constexpr unsigned kMost = 16;  // At most this many in one turn, since other work waits, too.
  for (unsigned looked = 0; looked < kMost && receives_ != nullptr; ++looked) {
    const std::uint32_t from = receives_->call.peer;
    if (from == kNone || from == spec_.rank || link_to(from).view_bytes == 0) return true;
    const Link link = link_to(from);
    transport::View view;
    const transport::Tag tag = group_tag(TagKind::message_header, spec_.slot());
    if (!link.views->take_view(link.endpoint, tag, transport::kAnySize, view)) return true;
    ++found;
    const auto header = next_of(view, from);
    if (!header) {
      keep(view, link);
      return true;
    }
    accept(*header, view.data + sizeof *header);
    link.views->release(view);
  }
  looks_ = receives_ != nullptr;
  return looks_;
}

/// Receives the body of a message, if it fits into a slot and arrives while this thread polls for
/// it.
bool PointToPoint::try_receive_body(const Link& link, const MessageHeader& header, void* data) {
  const std::uint64_t bytes = body_bytes(header);
  if (bytes > link.view_bytes) return false;
  const auto body = take_next(link, tag_of_body(header, spec_.rank), bytes);
  if (!body) return false;
  copy_bytes(data, body->data, bytes);
  link.views->release(*body);
  return true;
}

/// The next message with this tag from a peer, if it arrives while this thread polls for it.
std::optional<transport::View> PointToPoint::take_next(const Link& link,
                                                       transport::Tag tag,
                                                       std::uint64_t bytes) {
  transport::View view;
  const auto take = [&] { return link.views->take_view(link.endpoint, tag, bytes, view); };
  return patience_.await(take) ? std::optional(view) : std::nullopt;
}

/// Handles a message as if it had been received into a posted slot.
void PointToPoint::keep(const transport::View& view, const Link& link) {
  HeaderSlot& slot = pool_.take();
  slot.owner = this;
  slot.transport = link.transport;
  slot.incoming = true;
  slot.is_unposted = true;
  slot.bytes = std::min<std::uint64_t>(view.bytes, sizeof(MessageHeader) + kInlineMessage);
  std::memcpy(&slot.header, view.data, slot.bytes);
  link.views->release(view);
  slots_.push_back(&slot);
  pool_.completed(slot);
}

}  // namespace xylem::runtime
