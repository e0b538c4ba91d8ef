// SPDX-License-Identifier: Apache-2.0
#include "shm/incoming.h"

#include "shm/delays.h"
#include "xylem/base/copy.h"

#include <utility>

namespace xylem::transport::shm {

Outcome copy_out(const Receive& receive, Tag tag, const std::byte* data, std::uint64_t bytes) {
  if (receive.sender_tag != nullptr) *receive.sender_tag = tag;
  delay();
  if (!receive.fits(bytes)) return {receive.operation, Code::mismatch, 0};
  copy_bytes(receive.target.data, data, bytes);
  return {receive.operation, Code::ok, bytes};
}

// ---- the ring ----

bool Incoming::has_entry() const noexcept {
  const auto& turn = ring_[next_ % kEntries].turn;
  delay();
  return !is_ended_ && turn.load(std::memory_order_acquire) == turn_of(next_);
}

unsigned Incoming::drain() {
  unsigned count = 0;
  // At most kEntries per call: a sender may fill the ring as fast as it is drained, and between
  // calls the caller must check whether too many messages are kept.
  while (count < kEntries && has_entry() && take_next()) ++count;
  // Reading a message in device memory takes far longer than a report.
  if (std::exchange(has_device_message_, false)) report();
  count += streams_.fetch();
  constexpr std::uint32_t kIdleDrains = 16;
  if (count == 0 && unreported_ > 0 && ++idle_drains_ % kIdleDrains == 0) report();
  if (count == 0 && streams_.any_open() && sender_.has_ended() && !has_entry()) {
    end();
    return 1;
  }
  return count;
}

void Incoming::note_consumed(const Head& head) noexcept {
  constexpr std::uint32_t kEnough = 16, kSmallSlot = 4;
  const Geometry& theirs = segment_->geometry();
  const bool is_in_slot = head.kind == EntryKind::slotted || head.kind == EntryKind::fragment;
  const bool is_scarce =
      is_in_slot && (head.bytes > theirs.small_bytes || theirs.small_slots < 8 * theirs.channels);
  has_device_message_ |= head.kind == EntryKind::announce && head.slot == kOnDevice;
  unreported_ += is_scarce ? kEnough : is_in_slot ? kSmallSlot : 1;
  if (unreported_ >= kEnough) report();
}

void Incoming::report() noexcept {
  const std::uint64_t reported = consumed_;
  unreported_ = 0;
  // A viewed entry is not consumed yet, so entries count as consumed only up to the oldest viewed
  // one.
  while (consumed_ < next_ && (viewed_ >> consumed_ % kEntries & 1) == 0) ++consumed_;
  if (consumed_ == reported) return;
  delay();
  credit_->consumed.store(consumed_, std::memory_order_release);
  // The sender may be asleep because it had no room.
  sender_.wake();
}

/// Whether a sender of this build could have written the entry. The sender is not trusted.
bool Incoming::is_sound(const Head& head) const noexcept {
  const Geometry& geometry = segment_->geometry();
  if (head.id >= kStreams) return false;
  switch (head.kind) {
    case EntryKind::eager: return head.bytes <= kInlineBytes;
    case EntryKind::slotted:
    case EntryKind::fragment:
      return head.slot < geometry.slots() && head.bytes <= geometry.slot_bytes(head.slot);
    case EntryKind::announce: return head.slot <= kOnDevice;
    case EntryKind::withdrawn:
    case EntryKind::request:
    case EntryKind::closed:
    case EntryKind::nothing: return true;
  }
  return false;
}

bool Incoming::take_next() {
  const Entry& entry = ring_[next_ % kEntries];
  delay();
  const Head head = head_of(entry);
  const Taken taken = is_sound(head) ? take(head, entry) : Taken::never;
  if (taken == Taken::no_memory) return false;
  if (taken == Taken::never || head.kind == EntryKind::closed) end();
  ++next_;
  note_consumed(head);
  return true;
}

Incoming::Taken Incoming::take(const Head& head, const Entry& entry) {
  const auto outcome = [](bool is_good, Taken otherwise) {
    return is_good ? Taken::ok : otherwise;
  };
  switch (head.kind) {
    case EntryKind::eager:
      return outcome(take_message(head, entry.payload.data()), Taken::no_memory);
    case EntryKind::slotted:
      return outcome(take_message(head, segment_->slot(head.slot)), Taken::no_memory);
    case EntryKind::announce: return streams_.announce(head, entry);
    case EntryKind::fragment:
      return outcome(streams_.take_fragment(head, segment_->slot(head.slot)), Taken::never);
    case EntryKind::withdrawn: streams_.withdraw(head.id); break;
    case EntryKind::request:
      requests_->push_back({channel_, {head.tag, head.bytes}, holds_of_request(entry)});
      break;
    case EntryKind::closed:
    case EntryKind::nothing: break;
  }
  return Taken::ok;
}

void Incoming::toggle_hold() noexcept {
  ++holds_;
  delay();
  credit_->holds.store(holds_, std::memory_order_release);
  sender_.wake();
}

void Incoming::end() {
  is_ended_ = true;
  streams_.end();
}

// ---- messages ----

bool Incoming::take_message(const Head& head, const std::byte* data) {
  Receive receive;
  if (matcher_->take_receive(head.tag, receive)) {
    outcomes_->push_back(receive.wants_host_view()
                             ? Outcome{receive.operation, Code::ok, head.bytes, show(data)}
                             : copy_out(receive, head.tag, data, head.bytes));
    return true;
  }
  Arrived* const kept = matcher_->keep(channel_, head.tag, head.bytes);
  if (kept == nullptr) return false;
  delay();
  copy_bytes(kept->payload.data(), data, head.bytes);
  return true;
}

/// Makes a view of the next entry, which then stays in the ring until release().
View Incoming::show(const std::byte* data) noexcept {
  const auto place = static_cast<std::uint32_t>(next_ % kEntries);
  viewed_ |= std::uint64_t{1} << place;
  return {data, pack({channel_, false, place})};
}

bool Incoming::take_view(Tag tag, std::uint64_t bytes, View& view) noexcept {
  // During a hold, the sender sends one message for each posted receive. If take_view() consumed
  // this message, its receive would wait for another message, which the sender withholds.
  if (!has_entry() || is_hold(holds_)) return false;
  const Entry& entry = ring_[next_ % kEntries];
  delay();
  const Head head = head_of(entry);
  const bool is_message = head.kind == EntryKind::eager || head.kind == EntryKind::slotted;
  if (head.tag != tag || !is_message || !is_sound(head)) return false;
  if (bytes != kAnySize && head.bytes != bytes) return false;
  view = show(head.kind == EntryKind::eager ? entry.payload.data() : segment_->slot(head.slot));
  view.bytes = head.bytes;
  ++next_;
  return true;
}

bool Incoming::release(const ViewPlace& place) noexcept {
  if (place.is_stream) return streams_.release(static_cast<std::uint8_t>(place.number));
  viewed_ &= ~(std::uint64_t{1} << place.number);
  note_consumed(head_of(ring_[place.number]));
  return true;
}

}  // namespace xylem::transport::shm
