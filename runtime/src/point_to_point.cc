// SPDX-License-Identifier: Apache-2.0
#include "point_to_point.h"

#include "group.h"
#include "job.h"
#include "tag.h"
#include "xylem/base/hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace xylem::runtime {

using collectives::kNone;
using transport::Posted;

namespace {

std::uint64_t body_bytes(const MessageHeader& header) noexcept {
  return header.count * size_of(static_cast<DataType>(header.type));
}

std::uint64_t fingerprint_of(const MessageHeader& header) noexcept {
  return combine(combine(combine(header.group, header.count), header.type), header.tag);
}

}  // namespace

HeaderSlot& HeaderPool::take() {
  if (free_ == nullptr) {
    free_ = all_.emplace_back(std::make_unique<HeaderSlot>()).get();
    free_->pool = this;
    free_->done = &HeaderPool::on_done;
  }
  HeaderSlot& slot = *std::exchange(free_, free_->next);
  slot.next = nullptr;
  slot.code = Code::ok;
  slot.bytes = 0;
  slot.state = nullptr;
  ++in_use_;
  return slot;
}

void HeaderPool::give_back(HeaderSlot& slot) noexcept {
  slot.next = free_;
  free_ = &slot;
  --in_use_;
}

void HeaderPool::on_done(transport::Operation& done) noexcept {
  auto& slot = static_cast<HeaderSlot&>(done);
  slot.next = nullptr;
  *slot.pool->completed_tail_ = &slot;
  slot.pool->completed_tail_ = &slot.next;
}

void HeaderPool::run_completed(Job& job) {
  while (completed_ != nullptr) {
    HeaderSlot& slot = *completed_;
    completed_ = slot.next;
    if (completed_ == nullptr) completed_tail_ = &completed_;
    if (!slot.incoming) {
      sending_.fetch_sub(1, std::memory_order_release);
      slot.is_sent = false;
      if (slot.code != Code::ok) job.on_unsent(slot.header.group, slot.peer, slot.code);
      end_sender(job, slot);
    }
    if (slot.owner == nullptr) {
      give_back(slot);
    } else {
      slot.owner->on_header(slot);
    }
  }
}

bool HeaderPool::is_sending_to(std::uint32_t world_rank) const noexcept {
  return std::ranges::any_of(
      all_, [=](const auto& slot) { return slot->is_sent && slot->peer == world_rank; });
}

/// If the message did not go, the operation ends with its group.
void HeaderPool::end_sender(Job& job, HeaderSlot& slot) {
  if (slot.sender == nullptr) return;
  runtime::Operation& operation = *std::exchange(slot.sender, nullptr);
  operation.header = nullptr;
  if (slot.code != Code::ok) return;
  operation.run.steps_left = 0;
  job.engine().finish(operation, Status::ok());
}

void PointToPoint::start(Operation& operation) {
  operation.run.steps_left = 1;
  if (pairs_.empty()) pairs_.resize(group_.size());
  if (operation.call.kind == CallKind::recv) return receive(operation);
  if (operation.call.peer == group_.rank()) return send_to_self(operation);
  send(operation);
}

void PointToPoint::send(Operation& operation) {
  const Call& call = operation.call;
  HeaderSlot& slot = pool_.take();
  slot.owner = nullptr;
  slot.incoming = false;
  slot.peer = group_.world_rank(call.peer);
  slot.header = {group_.uid(),
                 pairs_[call.peer].sent++,
                 call.count,
                 group_.rank(),
                 call.tag,
                 static_cast<std::uint8_t>(call.type),
                 {}};
  const std::uint64_t bytes = body_bytes(slot.header);
  const bool small = bytes <= kInlineMessage;
  if (small && bytes > 0) std::memcpy(slot.payload, call.input, bytes);
  const bool is_eager = small && pool_.sending() < kEagerMessages;
  const Link link = group_.link(call.peer);
  const MessageHeader header = slot.header;
  const transport::ConstRegion region{
      &slot.header, sizeof(MessageHeader) + (small ? bytes : 0), {}};
  slot.is_sent = true;
  pool_.sending_.fetch_add(1, std::memory_order_relaxed);
  if (link.transport->send(link.endpoint, group_tag(TagKind::message_header, group_.slot()), region,
                           slot) == Posted::done) {
    HeaderPool::on_done(slot);
  }
  Engine& engine = group_.job().engine();
  if (is_eager) {
    operation.run.steps_left = 0;
    return engine.finish(operation, Status::ok());
  }
  if (small) {
    slot.sender = &operation;
    operation.header = &slot;
    return;
  }
  engine.post_send(operation, link,
                   body_tag(group_.slot(), group_.rank(), header.number, fingerprint_of(header)),
                   {call.input, bytes, {}});
}

void PointToPoint::send_to_self(Operation& operation) {
  const Call& call = operation.call;
  const MessageHeader header{group_.uid(),
                             pairs_[call.peer].sent++,
                             call.count,
                             group_.rank(),
                             call.tag,
                             static_cast<std::uint8_t>(call.type),
                             {}};
  if (Operation* receive = take_receive(header)) {
    return deliver(*receive, header, nullptr, &operation);
  }
  operation.is_unmatched = true;
  unexpected_.push_back({header, {}, &operation});
}

Operation* PointToPoint::take_receive(const MessageHeader& header) noexcept {
  Operation** place = &receives_;
  while (*place != nullptr && !matches(**place, header)) place = &(*place)->match_next;
  Operation* const receive = *place;
  if (receive != nullptr) unlink(place);
  return receive;
}

void PointToPoint::unlink(Operation** place) noexcept {
  Operation& receive = **place;
  *place = receive.match_next;
  if (receives_tail_ == &receive.match_next) receives_tail_ = place;
  receive.is_unmatched = false;
}

void PointToPoint::receive(Operation& operation) {
  post_slots(operation);
  const auto found = std::ranges::find_if(
      unexpected_, [&](const Arrived& arrived) { return matches(operation, arrived.header); });
  if (found != unexpected_.end()) {
    const Arrived arrived = std::move(*found);
    unexpected_.erase(found);
    return deliver(operation, arrived.header, arrived.payload.data(), arrived.self);
  }
  operation.match_next = nullptr;
  operation.is_unmatched = true;
  *receives_tail_ = &operation;
  receives_tail_ = &operation.match_next;
}

bool PointToPoint::matches(const Operation& receive, const MessageHeader& header) const noexcept {
  return receive.call.tag == header.tag &&
         (receive.call.peer == kNone || receive.call.peer == header.source);
}

void PointToPoint::deliver(Operation& receive,
                           const MessageHeader& header,
                           const std::byte* payload,
                           Operation* self) {
  Engine& engine = group_.job().engine();
  const auto type = static_cast<DataType>(header.type);
  if (header.count != receive.call.count || type != receive.call.type) {
    group_.job().announce(group_, Code::mismatch, group_.world_rank(header.source),
                          fmt::format("rank {} sends {} {} to rank {} with tag {}, which receives "
                                      "{} {}; count and type must agree",
                                      group_.world_rank(header.source), header.count, name(type),
                                      group_.world_rank(group_.rank()), header.tag,
                                      receive.call.count, name(receive.call.type)));
    return;
  }
  receive.source = group_.world_rank(header.source);
  const std::uint64_t bytes = body_bytes(header);
  if (self != nullptr || bytes <= kInlineMessage) {
    const void* source = self != nullptr ? self->call.input : payload;
    if (bytes > 0) std::memmove(receive.call.output, source, bytes);
    receive.run.steps_left = 0;
    engine.finish(receive, Status::ok());
    if (self != nullptr) {
      self->run.steps_left = 0;
      engine.finish(*self, Status::ok());
    }
    return;
  }
  engine.post_recv(receive, group_.link(header.source),
                   body_tag(group_.slot(), header.source, header.number, fingerprint_of(header)),
                   transport::kExactMatch, {receive.call.output, bytes, {}});
}

void PointToPoint::on_body(Message& message) {
  const Call& call = message.owner->call;
  if (message.incoming && message.bytes != call.count * size_of(call.type)) {
    return group_.job().announce(
        group_, Code::mismatch, message.owner->source,
        fmt::format("rank {} got {} bytes from rank {} where {} {} were announced",
                    group_.job().rank(), message.bytes, message.owner->source, call.count,
                    name(call.type)));
  }
  message.owner->run.steps_left = 0;
}

void PointToPoint::post_slots(const Operation& receive) {
  const std::uint32_t peer = receive.call.peer;
  const std::uint32_t first = peer == kNone ? 0 : peer;
  const std::uint32_t last = peer == kNone ? group_.size() : first + 1;
  for (std::uint32_t rank = first; rank < last; ++rank) {
    auto* const transport = group_.link(rank).transport;
    if (transport == nullptr || std::ranges::find(posted_, transport) != posted_.end()) continue;
    posted_.push_back(transport);
    for (std::size_t i = 0; i < kPostedSlots; ++i) add_slot(*transport);
  }
}

void PointToPoint::add_slot(transport::Transport& transport) {
  HeaderSlot& slot = pool_.take();
  slot.owner = this;
  slot.transport = &transport;
  slot.incoming = true;
  slots_.push_back(&slot);
  post_slot(slot);
}

void PointToPoint::post_slot(HeaderSlot& slot) {
  slot.code = Code::ok;
  slot.state = nullptr;
  const auto posted =
      slot.transport->recv(group_tag(TagKind::message_header, group_.slot()), kGroupMask,
                           {&slot.header, sizeof(MessageHeader) + kInlineMessage, {}}, slot);
  if (posted == Posted::done) HeaderPool::on_done(slot);
}

void PointToPoint::on_header(HeaderSlot& slot) {
  const bool whole = slot.code == Code::ok && slot.bytes >= sizeof(MessageHeader);
  if (whole && slot.header.group != group_.uid()) return post_slot(slot);  // Of the dead; dropped.
  if (!whole || slot.header.source >= group_.size() || slot.header.type >= kDataTypeCount) {
    return on_bad_slot(slot);
  }
  Pair& pair = pairs_[slot.header.source];
  if (slot.header.number != pair.expected) {
    pair.early.push_back(&slot);
    // Keep the number of posted slots up while this one waits for its turn.
    add_slot(*slot.transport);
    return;
  }
  accept(slot);
  post_slot(slot);
  for (bool more = true; more && !closed_;) {
    const auto next = std::ranges::find_if(
        pair.early, [&](const HeaderSlot* early) { return early->header.number == pair.expected; });
    more = next != pair.early.end();
    if (!more) break;
    HeaderSlot& early = **next;
    pair.early.erase(next);
    accept(early);
    std::erase(slots_, &early);
    pool_.give_back(early);
  }
}

/// Cancelled, or a wire that failed: without posted slots no message comes any more.
void PointToPoint::on_bad_slot(HeaderSlot& slot) {
  if (slot.code != Code::cancelled) {
    const std::uint32_t self = group_.world_rank(group_.rank());
    const Code code = slot.code == Code::ok ? Code::internal : slot.code;
    group_.job().suspect(
        group_,
        failure(code,
                fmt::format("rank {} can receive no messages of communicator {} any more ({})",
                            self, group_.slot(), name(code)),
                self));
  }
  std::erase(slots_, &slot);
  pool_.give_back(slot);
}

void PointToPoint::accept(HeaderSlot& slot) {
  const MessageHeader& header = slot.header;
  ++pairs_[header.source].expected;
  if (!group_.health()) return;
  if (Operation* receive = take_receive(header)) {
    return deliver(*receive, header, slot.payload, nullptr);
  }
  Arrived arrived{header, {}, nullptr};
  if (body_bytes(header) <= kInlineMessage) {
    arrived.payload.assign(slot.payload, slot.payload + body_bytes(header));
  }
  unexpected_.push_back(std::move(arrived));
}

void PointToPoint::forget(Operation& operation) noexcept {
  if (operation.header != nullptr) std::exchange(operation.header, nullptr)->sender = nullptr;
  if (!operation.is_unmatched) return;
  for (Operation** place = &receives_; *place != nullptr; place = &(*place)->match_next) {
    if (*place == &operation) return unlink(place);
  }
  std::erase_if(unexpected_, [&](const Arrived& arrived) { return arrived.self == &operation; });
}

void PointToPoint::close() noexcept {
  closed_ = true;
  for (Pair& pair : pairs_) {
    for (HeaderSlot* early : pair.early) {
      std::erase(slots_, early);
      pool_.give_back(*early);
    }
    pair.early.clear();
  }
  for (HeaderSlot* slot : slots_) {
    slot->owner = nullptr;
    slot->transport->cancel(*slot);
  }
  slots_.clear();
}

}  // namespace xylem::runtime
