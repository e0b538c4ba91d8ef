// SPDX-License-Identifier: Apache-2.0
#include "shm/outgoing.h"

#include "shm/delays.h"
#include "xylem/base/check.h"
#include "xylem/base/copy.h"

#include <algorithm>
#include <cstring>

namespace xylem::transport::shm {

// ---- messages ----

ReserveResult Outgoing::room() noexcept {
  if (!is_open() || receiver().has_ended()) return ReserveResult::use_send;
  retire();
  // During a hold, messages must be queued until the receiver requests them. Only send() does this,
  // and keeps their order.
  if (is_hold(ring_.holds()) || queue_.is_reordered()) return ReserveResult::use_send;
  // The messages in the queue must be sent before a new message.
  return !queue_.has(Sending::Stage::queued) && !ring_.is_full() ? ReserveResult::reserved
                                                                 : ReserveResult::retry_later;
}

Posted Outgoing::send(Tag tag, const Outbound& message, Operation& operation) {
  traffic_.count(message.bytes);
  operation.code = Code::ok;
  operation.bytes = 0;
  if (!is_open() || receiver().has_ended()) {
    operation.code = Code::peer_lost;
    return Posted::done;
  }
  Sending sending{&operation, message, tag, message.bytes <= slot_bytes_};
  const bool may_begin = !queue_.has_unbegun() && !is_hold(ring_.holds());
  const Begun begun = may_begin ? begin(sending, /*is_requested=*/false) : Begun::no_room;
  if (begun == Begun::failed) {
    operation.code = Code::internal;
    return Posted::done;
  }
  if (begun == Begun::ok) {
    if (!sending.is_announced() && sending.copies == 0) return Posted::done;
    queue_.add_begun(sending);
    return Posted::pending;
  }
  queue_.push(sending, ring_.holds());
  // During a hold, the message may have been requested. Otherwise it may be able to overtake
  // messages that wait for a stream id.
  if (queue_.is_reordered()) pump_queue();
  return Posted::pending;
}

bool Outgoing::send_inline(Tag tag, const std::byte* data, std::uint64_t bytes) {
  if (bytes > kInlineBytes || room() != ReserveResult::reserved) return false;
  Entry* entry = ring_.next_entry(EntryKind::eager, tag, bytes);
  if (entry == nullptr) return false;
  delay();
  copy_bytes(entry->payload.data(), data, bytes);
  ring_.publish();
  traffic_.count(bytes);
  return true;
}

void Outgoing::put(Tag tag, std::uint32_t slot, std::uint64_t bytes) {
  Entry* entry = ring_.next_entry(EntryKind::slotted, tag, bytes);
  XYLEM_CHECK(entry != nullptr, slot);
  ring_.set_slot(*entry, slot);
  entry->id = 0;
  ring_.publish();
  traffic_.count(bytes);
}

/// Puts a message into the ring, either whole or as an announcement. If it should be announced, but
/// no stream id is free, it goes through a slot if it fits.
Begun Outgoing::begin(Sending& sending, bool is_requested) {
  if (sending.is_announced()) {
    if (streams_.has_id(sending.fits_slot, is_requested)) return announce(sending);
    if (!sending.fits_slot) return Begun::no_stream_id;
    sending.message.location = {};
  }
  const std::uint64_t bytes = sending.message.bytes;
  return bytes > kInlineBytes ? put_slot(EntryKind::slotted, sending, bytes) : put_inline(sending);
}

Begun Outgoing::announce(Sending& sending) {
  const Outbound& message = sending.message;
  Entry* entry = ring_.next_entry(EntryKind::announce, sending.tag, message.bytes);
  if (entry == nullptr) return Begun::no_room;
  entry->id = sending.id = streams_.acquire_id(sending.fits_slot);
  delay();
  const bool is_on_device = message.location.where == Location::Where::device;
  entry->slot = is_on_device ? kOnDevice : 0;
  if (is_on_device) {
    std::memcpy(entry->payload.data(), &message.place, sizeof message.place);
  } else {
    std::memcpy(entry->payload.data(), &message.location, sizeof message.location);
  }
  ring_.publish();
  ++traffic_.announced;
  return Begun::ok;
}

Begun Outgoing::put_inline(Sending& sending) {
  Entry* entry = ring_.next_entry(EntryKind::eager, sending.tag, sending.message.bytes);
  if (entry == nullptr) return Begun::no_room;
  return fill(entry->payload.data(), sending, sending.message.bytes) ? Begun::ok : Begun::failed;
}

/// Copies the next `bytes` of the message into a slot.
Begun Outgoing::put_slot(EntryKind kind, Sending& sending, std::uint64_t bytes) {
  Entry* entry = ring_.next_entry(kind, sending.tag, bytes);
  if (entry == nullptr) return Begun::no_room;
  std::byte* const slot = ring_.acquire_slot(*entry, bytes);
  if (slot == nullptr) return Begun::no_room;
  entry->id = sending.id;
  if (fill(slot, sending, bytes)) return Begun::ok;
  ring_.release_slot();
  return Begun::failed;
}

/// Writes the next `bytes` of a message to `target`, which is in the prepared entry or its slot,
/// and publishes the entry. For device memory, begins the copy; pump_copies() publishes the entry
/// when the copy has ended. False if the device refuses the copy. Host memory is written into slots
/// with the faster kind of store or, as a trial, with the other kind.
bool Outgoing::fill(std::byte* target, Sending& sending, std::uint64_t bytes) {
  const Outbound& message = sending.message;
  const std::byte* data = message.data + sending.sent;
  sending.sent += bytes;
  delay();
  if (message.memory.kind != MemoryKind::host) {
    const DeviceRead read = devices_->begin_read(target, {data, bytes, message.memory});
    if (read.number == 0) return false;
    fillings_.push_back({ring_.defer(), read, sending.operation});
    ++sending.copies;
    traffic_.staged_bytes += bytes;
    return true;
  }
  if (bytes < CacheChoice::kLeastBytes) {
    copy_bytes(target, data, bytes);
  } else {
    const bool non_temporal = cache_choice_.is_non_temporal() != cache_choice_.is_trial();
    cache_choice_.learn(non_temporal, copy_timed({target, non_temporal}, data, bytes));
  }
  ring_.publish();
  return true;
}

// ---- requests ----

void Outgoing::on_request(const Request& request, std::uint64_t holds) {
  if (ring_.credit() == nullptr || !is_open()) return;
  // Requests apply only to the hold during which they were sent.
  if (ring_.read_holds() == holds) queue_.request(request, holds);
}

bool Outgoing::send_request(const Request& request, std::uint64_t holds) noexcept {
  if (!is_open()) return true;  // The endpoint is closed: messages of its peer are not received.
  Entry* entry =
      ring_.next_entry(EntryKind::request, request.tag, static_cast<std::uint64_t>(request.mask));
  if (entry == nullptr) return false;
  std::memcpy(entry->payload.data(), &holds, sizeof holds);
  ring_.publish();
  return true;
}

// ---- progress ----

unsigned Outgoing::pump() {
  // The state is read first: everything that the receiver reported before it ended is then
  // processed below.
  const bool has_ended = receiver().has_ended();
  retire();
  unsigned count = pump_copies();
  count += pump_streams(has_ended);
  if (has_ended) {
    queue_.complete_all(Code::peer_lost);
    streams_.end();
    standing_ = Standing::closed;
    return count + 1;
  }
  count += streams_.pump_withdrawn(ring_);
  count += pump_queue();
  if (standing_ == Standing::closing && ring_.next_entry(EntryKind::closed, 0, 0) != nullptr) {
    ring_.publish();
    standing_ = Standing::closed;
    ++count;
  }
  return count;
}

unsigned Outgoing::pump_queue() {
  return queue_.pump(
      [this](Sending& sending, bool is_requested) { return begin(sending, is_requested); },
      [this] { return is_hold(ring_.holds()); });
}

/// Publishes the entries that devices have filled.
unsigned Outgoing::pump_copies() {
  return static_cast<unsigned>(std::erase_if(fillings_, [this](const Filling& filling) {
    const DeviceRead::State state = devices_->state_of(filling.read);
    if (state == DeviceRead::State::pending) return false;
    const bool has_failed = state == DeviceRead::State::failed;
    if (has_failed) {
      ring_.publish_nothing(filling.entry);
    } else {
      ring_.publish(filling.entry);
    }
    copy_ended(*filling.operation, has_failed);
    return true;
  }));
}

void Outgoing::copy_ended(const Operation& operation, bool has_failed) {
  const auto found = queue_.find(operation);
  if (!found) return;
  const auto at = *found;
  --at->copies;
  if (at->stage != Sending::Stage::announced) {
    if (has_failed && at->code == Code::ok) at->code = Code::internal;
    return queue_.complete(at, at->code);
  }
  if (has_failed) return withdraw(at, Code::internal);
  if (at->copies == 0 && at->sent == at->message.bytes) end_stream(at);
}

/// Ends a stream. Requires that the receiver has fetched the whole message, or that all fragments
/// are in the ring.
void Outgoing::end_stream(SendQueue::Position at) {
  streams_.finish(at->id);
  queue_.complete(at);
}

/// Ends streams that the receiver has fetched. For the other granted streams, sends as many
/// fragments as there is room for, unless the receiver has ended.
unsigned Outgoing::pump_streams(bool has_ended) {
  const OutgoingStreams::Grants grants = streams_.grants(ring_.credit());
  if (grants.granted == 0) return 0;
  unsigned count = 0;
  bool has_room = !has_ended;
  queue_.for_each_announced([&](SendQueue::Position at) {
    const std::uint64_t bit = bit_of(at->id);
    if ((grants.granted & bit) == 0) return;
    if ((grants.fetched & bit) != 0) {
      at->sent = at->message.bytes;
      ++count;
    }
    const Begun sent = has_room ? send_fragments(*at, count) : Begun::no_room;
    if (sent == Begun::failed) return withdraw(at, Code::internal);
    if (at->sent < at->message.bytes) {
      has_room = false;
    } else if (at->copies == 0) {
      end_stream(at);
    }
  });
  return count;
}

Begun Outgoing::send_fragments(Sending& sending, unsigned& count) {
  while (sending.sent < sending.message.bytes) {
    const std::uint64_t bytes = std::min(slot_bytes_, sending.message.bytes - sending.sent);
    const Begun sent = put_slot(EntryKind::fragment, sending, bytes);
    if (sent != Begun::ok) return sent;
    ++count;
  }
  return Begun::ok;
}

// ---- the end ----

/// Ends the send of a stream. The receiver may already have a part of the message.
void Outgoing::withdraw(SendQueue::Position at, Code code) {
  streams_.withdraw(at->id);
  queue_.complete(at, code);
}

bool Outgoing::cancel(const Operation& operation) {
  const auto found = queue_.find(operation);
  if (!found) return false;
  const auto at = *found;
  const bool is_all_in_ring =
      at->stage == Sending::Stage::copying || (at->copies > 0 && at->sent == at->message.bytes);
  if (is_all_in_ring) return true;
  if (at->stage == Sending::Stage::announced) {
    withdraw(at, Code::cancelled);
  } else {
    queue_.complete(at, Code::cancelled);
  }
  streams_.pump_withdrawn(ring_);
  return true;
}

void Outgoing::close(bool hello_was_sent) {
  if (!is_open()) return;
  streams_.withdraw_all();
  queue_.complete_all(Code::peer_lost);
  standing_ = hello_was_sent ? Standing::closing : Standing::closed;
  if (hello_was_sent) pump();
}

}  // namespace xylem::transport::shm
