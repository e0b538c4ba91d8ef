// SPDX-License-Identifier: Apache-2.0
#include "groups/header_receiver.h"

#include "xylem/execution/tag.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace xylem::runtime {

using collectives::kNone;
using execution::group_tag;
using execution::TagKind;
using transport::Posted;

void HeaderReceiver::post_slots(std::uint32_t peer) {
  const std::uint32_t first = peer == kNone ? 0 : peer;
  const std::uint32_t last = peer == kNone ? spec_.size() : first + 1;
  for (std::uint32_t rank = first; rank < last; ++rank) {
    auto* const transport = peers_.links[rank].transport;
    if (transport == nullptr || std::ranges::find(posted_, transport) != posted_.end()) continue;
    posted_.push_back(transport);
    for (std::size_t i = 0; i < kPostedSlots; ++i) add_slot(*transport);
  }
}

HeaderSlot& HeaderReceiver::take_slot(transport::Transport& transport) {
  HeaderSlot& slot = pool_.take();
  slot.owner = this;
  slot.transport = &transport;
  slot.incoming = true;
  slots_.push_back(&slot);
  return slot;
}

void HeaderReceiver::add_slot(transport::Transport& transport) { post_slot(take_slot(transport)); }

void HeaderReceiver::post_slot(HeaderSlot& slot) {
  slot.code = Code::ok;
  slot.state = nullptr;
  const auto posted =
      slot.transport->recv(group_tag(TagKind::message_header, spec_.slot()), transport::kExactMatch,
                           {&slot.header, sizeof(MessageHeader) + kInlineMessage, {}}, slot);
  if (posted == Posted::done) pool_.completed(slot);
}

void HeaderReceiver::wake_slots() {
  for (HeaderSlot* slot : std::exchange(resting_, {})) post_slot(*slot);
}

void HeaderReceiver::on_header(HeaderSlot& slot) {
  if (slot.drops_body) return drop(slot);
  const bool whole = slot.code == Code::ok && slot.bytes >= sizeof(MessageHeader);
  if (whole && slot.header.group != spec_.uid) {
    // The message is left over from an earlier communicator with this tag slot, and is ignored.
    return slot.is_unposted ? drop(slot) : post_slot(slot);
  }
  if (!whole || slot.header.source >= spec_.size() || slot.header.type >= kDataTypeCount) {
    return on_bad_slot(slot);
  }
  Source& source = sources_[slot.header.source];
  if (slot.header.number != source.expected) {
    source.early.push_back(&slot);
    // This slot keeps its header until all earlier headers have arrived. Another slot is posted in
    // its place.
    if (!slot.is_unposted) add_slot(*slot.transport);
    return;
  }
  accept(slot);
  if (slot.is_unposted) {
    drop(slot);
  } else if (client_.is_full()) {
    resting_.push_back(&slot);
  } else {
    post_slot(slot);
  }
  while (!is_closed_) {
    const auto next = std::ranges::find_if(source.early, [&](const HeaderSlot* early) {
      return early->header.number == source.expected;
    });
    if (next == source.early.end()) break;
    HeaderSlot& early = **next;
    source.early.erase(next);
    accept(early);
    drop(early);
  }
}

void HeaderReceiver::accept(const HeaderSlot& slot) {
  skip(slot.header.source);
  client_.accept(slot.header, slot.payload);
}

/// Handles a slot whose receive was cancelled or has failed, or that contains no valid header. A
/// failure is reported, since without posted slots no message can arrive.
void HeaderReceiver::on_bad_slot(HeaderSlot& slot) {
  if (slot.code != Code::cancelled) {
    const std::uint32_t self = spec_.own_world_rank();
    const Code code = slot.code == Code::ok ? Code::internal : slot.code;
    group_.suspect(failure(code,
                           fmt::format("rank {} can receive no messages of {} any more ({})", self,
                                       spec_.label(), name(code)),
                           self));
  }
  drop(slot);
}

void HeaderReceiver::drop(HeaderSlot& slot) noexcept {
  std::erase(slots_, &slot);
  pool_.give_back(slot);
}

std::optional<MessageHeader> HeaderReceiver::next_of(const transport::View& message,
                                                     std::uint32_t source) const noexcept {
  if (message.bytes < sizeof(MessageHeader)) return std::nullopt;
  MessageHeader header;
  std::memcpy(&header, message.data, sizeof header);
  if (header.group != spec_.uid || header.source != source || header.type >= kDataTypeCount ||
      header.number != sources_[source].expected || header.is_note != 0) {
    return std::nullopt;
  }
  const std::uint64_t bytes = body_bytes(header);
  const std::uint64_t payload = bytes <= kInlineMessage ? bytes : 0;
  return message.bytes == sizeof header + payload ? std::optional(header) : std::nullopt;
}

void HeaderReceiver::keep(const transport::View& view, const execution::Link& link) {
  HeaderSlot& slot = take_slot(*link.transport);
  slot.is_unposted = true;
  slot.bytes = std::min<std::uint64_t>(view.bytes, sizeof(MessageHeader) + kInlineMessage);
  std::memcpy(&slot.header, view.data, slot.bytes);
  link.views->release(view);
  pool_.completed(slot);
}

void HeaderReceiver::drop_body(transport::Transport& transport, transport::Tag tag) {
  HeaderSlot& slot = take_slot(transport);
  slot.drops_body = true;
  const Posted posted = transport.recv(tag, transport::kExactMatch,
                                       {.data = slot.payload, .bytes = 0, .memory = {}}, slot);
  if (posted == Posted::done) pool_.completed(slot);
}

void HeaderReceiver::close() noexcept {
  is_closed_ = true;
  for (HeaderSlot* resting : std::exchange(resting_, {})) drop(*resting);
  for (Source& source : sources_) {
    for (HeaderSlot* early : std::exchange(source.early, {})) drop(*early);
  }
  for (HeaderSlot* slot : std::exchange(slots_, {})) {
    slot->owner = nullptr;
    slot->transport->cancel(*slot);
  }
}

}  // namespace xylem::runtime
