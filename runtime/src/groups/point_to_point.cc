// SPDX-License-Identifier: Apache-2.0
#include "groups/point_to_point.h"

#include "calls/calls.h"
#include "xylem/base/clock.h"
#include "xylem/base/copy.h"
#include "xylem/base/hash.h"
#include "xylem/execution/tag.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>

namespace xylem::runtime {

using execution::body_tag;
using execution::group_tag;
using execution::TagKind;

using transport::Posted;

namespace {

std::uint64_t fingerprint_of(const MessageHeader& header) noexcept {
  return combine(combine(combine(header.group, header.count), header.type), header.tag);
}

/// About how long a copy from a device to the host takes, over PCIe 4.0 with 16 lanes.
std::chrono::nanoseconds time_to_host(std::uint64_t bytes) noexcept {
  constexpr std::uint64_t kBytesPerMicrosecond = 25'000;
  return std::chrono::microseconds(20 + bytes / kBytesPerMicrosecond);
}

}  // namespace

PointToPoint::PointToPoint(GroupControl& group,
                           const GroupSpec& spec,
                           const execution::Peers& peers,
                           const Wires& wires,
                           ControlPlane& control,
                           Engine& engine,
                           HeaderPool& headers)
    : group_(group),
      spec_(spec),
      peers_(peers),
      wires_(wires),
      control_(control),
      engine_(engine),
      pool_(headers),
      polling_(engine.poll_budget()),
      headers_(*this, group, spec, peers, headers) {}

MessageHeader PointToPoint::next_header(std::uint32_t to,
                                        std::uint64_t count,
                                        DataType type,
                                        std::uint32_t tag) const noexcept {
  return {.group = spec_.uid,
          .count = count,
          .number = pairs_[to].sent,
          .source = spec_.rank,
          .tag = tag,
          .type = static_cast<std::uint8_t>(type)};
}

void PointToPoint::open() {
  if (!pairs_.empty()) return;
  headers_.open();
  pairs_.resize(spec_.size());
  for (std::uint32_t rank = 0; rank < spec_.size(); ++rank) {
    pairs_[rank].has_left = group_.has_left(rank);
  }
}

void PointToPoint::receive_notes() {
  open();
  headers_.post_slots(collectives::kNone);
}

void PointToPoint::hasten_notes(bool are_urgent) {
  is_urgent_ = are_urgent;
  if (are_urgent) headers_.wake_slots();
}

void PointToPoint::send_note(std::uint32_t to, std::span<const std::byte> bytes) {
  open();
  if (pairs_[to].has_left) return;
  MessageHeader header = next_header(to, bytes.size(), DataType::uint8, 0);
  header.is_note = 1;
  ++pairs_[to].sent;
  Call call;
  call.peer = to;
  call.input = bytes.data();
  send_header(header, call);
}

void PointToPoint::start(Operation& operation) {
  open();
  if (operation.call.kind == CallKind::recv) return receive(operation);
  send(operation);
}

void PointToPoint::note_left(std::uint32_t rank) noexcept {
  if (!pairs_.empty()) pairs_[rank].has_left = true;
}

Staging PointToPoint::staging_of(const Call& call,
                                 const execution::OnDevice& device) const noexcept {
  const std::uint64_t bytes = call.count * size_of(call.type);
  if (device.compute == nullptr || bytes == 0) return Staging::never;
  const bool is_any = call.peer == collectives::kNone;
  const bool is_through_host =
      bytes <= kInlineMessage || device.compute->device_memory() == nullptr ||
      (!is_any && !wires_.capabilities(spec_.world_ranks[call.peer]).sends_devices);
  if (is_through_host) return Staging::always;
  return call.kind == CallKind::recv ? Staging::if_needed : Staging::never;
}

void PointToPoint::send(Operation& operation) {
  polling_.note_send();
  Call& call = operation.call;
  Pair& pair = pairs_[call.peer];
  if (pair.has_left) {
    const std::uint32_t peer = spec_.world_ranks[call.peer];
    return group_.announce(Code::peer_lost, peer,
                           fmt::format("rank {} left the job before rank {} sent it a message "
                                       "with tag {}",
                                       peer, spec_.own_world_rank(), call.tag));
  }
  const auto& device = operation.run.device;
  const bool is_copied = staging_of(call, device) == Staging::always;
  if (!is_copied && !device.gate.is_pending()) {
    if (pair.waiting == nullptr && pair.sending < kMostSending) return begin_send(operation);
    return wait_for_turn(operation);
  }
  execution::OnDevice::Copy copy;  // An empty copy only waits for the gate.
  if (is_copied) {
    const std::uint64_t bytes = call.count * size_of(call.type);
    std::byte* const room = host_room(operation, bytes);
    if (room == nullptr) return;
    copy = {room, std::exchange(call.input, room), bytes};
  }
  operation.lists.is_staging = true;
  wait_for_turn(operation);
  engine_.post_copy(operation, copy);
}

/// Appends a send to the list of sends to its destination that wait for their turn.
void PointToPoint::wait_for_turn(Operation& operation) {
  Pair& pair = pairs_[operation.call.peer];
  operation.lists.match_next = nullptr;
  operation.lists.is_queued = true;
  (pair.waiting == nullptr ? pair.waiting : pair.last_waiting->lists.match_next) = &operation;
  pair.last_waiting = &operation;
}

/// Begins waiting sends to a rank in the order of the calls, as long as there is room.
void PointToPoint::send_waiting(Pair& pair) {
  while (pair.waiting != nullptr && !pair.waiting->lists.is_staging &&
         pair.sending < kMostSending && group_.health()) {
    Operation& next = *std::exchange(pair.waiting, pair.waiting->lists.match_next);
    next.lists.is_queued = false;
    next.lists.match_next = nullptr;
    next.acquire();  // begin_send() may end the operation.
    begin_send(next);
    next.release();
  }
}

/// The host memory for a message from or to a device, which Group::submit() has reserved. If there
/// is none, fails the group on all ranks, and returns null.
std::byte* PointToPoint::host_room(Operation& operation, std::uint64_t bytes) {
  std::byte* const room = operation.run.staged.reserved(bytes, operation.run.device.compute);
  if (room == nullptr) {
    group_.announce(Code::exhausted, spec_.own_world_rank(),
                    fmt::format("rank {} has no host memory for a message of {} bytes",
                                spec_.own_world_rank(), bytes));
  }
  return room;
}

void PointToPoint::on_copied(Operation& operation) {
  const Call& call = operation.call;
  const bool was_staging = std::exchange(operation.lists.is_staging, false);
  if (call.kind == CallKind::send) return send_waiting(pairs_[call.peer]);
  if (auto* const waits = std::exchange(operation.gate_waits, nullptr)) waits->note_in_time();
  // If the receive was staging, its message has been copied to the host, and is now copied to the
  // device. Otherwise it has been copied to the device, and the receive ends.
  if (was_staging) copy_to_device(operation);
}

/// Begins a send. The send of a small message ends at once, since the message has been copied. The
/// send of a large message ends with its body.
void PointToPoint::begin_send(Operation& operation) {
  const Call& call = operation.call;
  if (call.peer == spec_.rank) return send_to_self(operation);
  const MessageHeader header = next_header(call.peer, call.count, call.type, call.tag);
  const Sent sent = send_at_once(call.peer, header, region_of(operation));
  ++pairs_[call.peer].sent;
  if (sent == Sent::nothing) send_header(header, call);
  const bool is_small = body_bytes(header) <= kInlineMessage;
  if (!is_small && sent != Sent::all) return send_body(operation, header);
  operation.run.steps_left = 0;
  engine_.finish(operation, Status::ok());
}

/// Sends a header, with the payload of a small message, from a slot of the pool.
void PointToPoint::send_header(const MessageHeader& header, const Call& call) {
  HeaderSlot& slot = pool_.take();
  slot.owner = nullptr;
  slot.sender = this;
  slot.incoming = false;
  slot.to = call.peer;
  slot.peer = spec_.world_ranks[call.peer];
  slot.header = header;
  ++pairs_[call.peer].sending;
  const std::uint64_t bytes = body_bytes(header);
  const std::uint64_t payload = bytes <= kInlineMessage ? bytes : 0;
  copy_bytes(slot.payload, call.input, payload);
  const Link& link = link_to(call.peer);
  const transport::ConstRegion region{&slot.header, sizeof(MessageHeader) + payload, {}};
  pool_.note_sent(slot);
  const transport::Tag tag = group_tag(TagKind::message_header, spec_.slots[call.peer]);
  if (link.transport->send(link.endpoint, tag, region, slot) == Posted::done) {
    pool_.completed(slot);
  }
}

/// A transport has sent a header and released its slot, so a waiting send may begin.
void PointToPoint::on_sent(const HeaderSlot& slot) {
  Pair& pair = pairs_[slot.to];
  --pair.sending;
  if (slot.code != Code::ok) {  // The header was lost.
    return group_.suspect(failure(slot.code,
                                  fmt::format("rank {} lost its connection to rank {} ({})",
                                              spec_.own_world_rank(), slot.peer, name(slot.code)),
                                  slot.peer));
  }
  send_waiting(pair);
}

transport::Tag PointToPoint::tag_of_body(const MessageHeader& header,
                                         std::uint32_t to) const noexcept {
  return body_tag(spec_.slots[to], header.source, header.number, fingerprint_of(header));
}

/// The bytes that an operation sends, and where they are: in the user's memory, or in host memory
/// to which they have been copied.
transport::ConstRegion PointToPoint::region_of(const Operation& operation) const noexcept {
  const Call& call = operation.call;
  return {
      .data = call.input,
      .bytes = call.count * size_of(call.type),
      .memory = staging_of(call, operation.run.device) == Staging::always ? Memory{} : call.memory,
      .in_place = transport::InPlace::anywhere};
}

void PointToPoint::send_body(Operation& operation, const MessageHeader& header) {
  operation.sequence = header.number;
  engine_.post_send(operation, link_to(operation.call.peer),
                    tag_of_body(header, operation.call.peer), region_of(operation));
}

void PointToPoint::send_to_self(Operation& operation) {
  const Call& call = operation.call;
  const MessageHeader header = next_header(call.peer, call.count, call.type, call.tag);
  ++pairs_[call.peer].sent;
  if (Operation* receive = queue_.take_receive(header)) {
    return deliver(*receive, header, nullptr, &operation);
  }
  queue_.keep_self(header, operation);
}

void PointToPoint::receive(Operation& operation) {
  headers_.post_slots(operation.call.peer);
  if (const auto arrived = queue_.take_arrived(operation)) {
    if (queue_.arrived_bytes() <= kMostUnexpected / 2) headers_.wake_slots();
    return deliver(operation, arrived->header, arrived->payload.data(), arrived->self);
  }
  queue_.push(operation);
  if (!is_polling_) pool_.start_polling(*this);
  is_polling_ = true;
  // The message may come after others that no receive has matched, so slots are posted again even
  // if these others use too much memory.
  headers_.wake_slots();
}

void PointToPoint::deliver(Operation& receive,
                           const MessageHeader& header,
                           const std::byte* payload,
                           Operation* self) {
  const auto type = static_cast<DataType>(header.type);
  if (type != receive.call.type) {
    group_.announce(Code::mismatch, spec_.world_ranks[header.source],
                    fmt::format("rank {} sends {} {} to rank {} with tag {}, which receives "
                                "{} {}; the types must agree",
                                spec_.world_ranks[header.source], header.count, name(type),
                                spec_.own_world_rank(), header.tag, receive.call.count,
                                name(receive.call.type)));
    return;
  }
  polling_.note_arrival();
  if (header.count > receive.call.count) return refuse(receive, header, self);
  match(receive, header);
  if (self != nullptr || body_bytes(header) <= kInlineMessage) {
    if (self == nullptr) return complete_receive(receive, payload);
    // If there is no memory for the receive, complete_receive() fails the group, which ends this
    // send.
    self->acquire();
    complete_receive(receive, self->call.input);
    if (!self->has_ended) {
      self->run.steps_left = 0;
      engine_.finish(*self, Status::ok());
    }
    self->release();
    return;
  }
  receive_body(receive, header);
}

/// Records which message a receive has matched.
void PointToPoint::match(Operation& receive, const MessageHeader& header) const noexcept {
  receive.source = spec_.world_ranks[header.source];
  receive.received = header.count;
}

/// Completes a receive whose bytes are at `source`, in host memory.
void PointToPoint::complete_receive(Operation& operation, const void* source) {
  const Call& call = operation.call;
  const std::uint64_t bytes = received_bytes(operation);
  operation.run.steps_left = 0;
  if (operation.run.device.compute == nullptr || bytes == 0) {
    if (bytes > 0) std::memmove(call.output, source, bytes);
    return engine_.finish(operation, Status::ok());
  }
  std::byte* const room = host_room(operation, bytes);
  if (room == nullptr) return;
  std::memcpy(room, source, bytes);
  copy_to_device(operation);
}

void PointToPoint::receive_body(Operation& operation, const MessageHeader& header) {
  void* target = operation.call.output;
  if (operation.run.device.compute != nullptr) {
    target = host_room(operation, body_bytes(header));
    if (target == nullptr) return;
    operation.gate_waits = &pairs_[header.source].gate_waits;
  }
  engine_.post_recv(operation, link_to(header.source), tag_of_body(header, spec_.rank),
                    transport::kExactMatch, {target, body_bytes(header), {}});
}

/// Copies a message to the device, from the host memory into which it was received.
void PointToPoint::copy_to_device(Operation& operation) {
  const std::uint64_t bytes = received_bytes(operation);
  operation.gate_waits = nullptr;
  operation.run.steps_left = 0;
  if (const std::byte* const room = host_room(operation, bytes)) {
    engine_.post_copy(operation, {operation.call.output, room, bytes});
  }
}

/// Copies a message from the device memory of its sender to the device, when the stream of the
/// receive has reached the receive, that is, when its gate opens. The stream may itself wait for
/// work that needs the end of the send. So the copy waits only about as long as a copy to the host
/// takes; if the gate is still closed then, the message is copied to the host. If each rank sends
/// before it receives, on one stream, the wait always fails. So after a failed wait, most messages
/// do not wait (GateWaits).
void PointToPoint::copy_on_device(Operation& operation, const execution::HeldView& held) {
  const std::uint64_t bytes = received_bytes(operation);
  operation.run.steps_left = 0;
  const bool is_due = operation.gate_waits->may_wait();
  const auto wait = is_due ? time_to_host(bytes) : std::chrono::nanoseconds(0);
  engine_.post_copy(operation, {operation.call.output, held.view.data, bytes, held},
                    Deadline::after(wait));
}

void PointToPoint::on_late_gate(Operation& operation, const execution::OnDevice::Copy& copy) {
  std::exchange(operation.gate_waits, nullptr)->note_failed_wait();
  std::byte* const room = host_room(operation, copy.bytes);
  if (room == nullptr) {
    copy.view.views->release(copy.view.view);
    return;
  }
  operation.lists.is_staging = true;
  engine_.post_copy_before_gate(operation, {room, copy.source, copy.bytes, copy.view});
}

void PointToPoint::on_body(Message& message) {
  Operation& operation = operation_of(message);
  if (!operation.health) {
    if (!message.incoming && operation.fails_alone) answer_late_refusal(operation);
    return;
  }
  if (message.incoming && message.bytes != received_bytes(operation)) {
    return group_.announce(
        Code::mismatch, operation.source,
        fmt::format("rank {} got {} bytes from rank {} where {} {} were announced",
                    spec_.own_world_rank(), message.bytes, operation.source, operation.received,
                    name(operation.call.type)));
  }
  if (!message.incoming || operation.run.device.compute == nullptr) {
    operation.run.steps_left = 0;
    return;
  }
  const transport::View view = std::exchange(message.view, {});
  if (view.data == nullptr) return copy_to_device(operation);
  copy_on_device(operation, {message.views, view, execution::kPointToPoint});
}

/// If there is no memory for a message that no receive waits for, the group fails: the message has
/// left its transport, and would be lost.
void PointToPoint::accept(const MessageHeader& header, const std::byte* payload) {
  if (!group_.health()) return;
  if (header.is_note != 0) return group_.on_note(header.source, {payload, body_bytes(header)});
  if (Operation* receive = queue_.take_receive(header)) {
    return deliver(*receive, header, payload, nullptr);
  }
  if (queue_.keep(header, payload)) return;
  group_.announce(
      Code::exhausted, spec_.own_world_rank(),
      fmt::format("rank {} has no memory for a message of {} bytes from rank {}, for which no "
                  "receive was waiting; receive messages in the order in which they are sent",
                  spec_.own_world_rank(), body_bytes(header), spec_.world_ranks[header.source]));
}

void PointToPoint::forget(Operation& operation) noexcept {
  if (!operation.lists.is_queued) return;
  if (operation.call.kind == CallKind::send && forget_waiting(operation)) return;
  queue_.forget(operation);
}

/// Removes a send that waits for its turn. False if the operation is not such a send.
bool PointToPoint::forget_waiting(Operation& operation) noexcept {
  Pair& pair = pairs_[operation.call.peer];
  Operation* previous = nullptr;
  for (Operation* at = pair.waiting; at != nullptr; previous = at, at = at->lists.match_next) {
    if (at != &operation) continue;
    (previous == nullptr ? pair.waiting : previous->lists.match_next) = at->lists.match_next;
    if (pair.last_waiting == at) pair.last_waiting = previous;
    operation.lists.is_queued = false;
    return true;
  }
  return false;
}

void PointToPoint::close() noexcept {
  pool_.forget(*this);
  headers_.close();
}

}  // namespace xylem::runtime
