// SPDX-License-Identifier: Apache-2.0
#include "shm/incoming.h"

#include "shm/delays.h"
#include "xylem/base/copy.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace xylem::transport::shm {
namespace {

/// Of what is fetched in one go: between two of them everything else is heard.
constexpr std::uint64_t kPiece = 512 << 10;

bool fits(const Receive& receive, std::uint64_t bytes) noexcept {
  return bytes <= receive.target.bytes;
}

}  // namespace

Outcome copy_out(const Receive& receive, Tag tag, const std::byte* data, std::uint64_t bytes) {
  if (receive.sender_tag != nullptr) *receive.sender_tag = tag;
  delay();
  if (!fits(receive, bytes)) return {receive.operation, Code::mismatch, 0};
  if (bytes > 0) std::memcpy(receive.target.data, data, bytes);
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
  while (has_entry()) {
    const Entry& entry = ring_[next_ % kEntries];
    take(entry);
    ++next_;
    ++count;
    note_taken(entry);
  }
  if (fetching_ != 0) count += fetch_pieces();
  constexpr std::uint32_t kIdleDrains = 16;
  if (count == 0 && untold_ > 0 && ++idle_drains_ % kIdleDrains == 0) publish();
  if (count == 0 && open_streams_ > 0 && sender_.is_gone() && !has_entry()) {
    end();
    return 1;
  }
  return count;
}

void Incoming::note_taken(const Entry& entry) noexcept {
  constexpr std::uint32_t kEnough = 16, kSmallSlot = 4;
  const Geometry& theirs = segment_->geometry();
  const bool is_scarce = entry.bytes > theirs.small_bytes ||
                         (entry.bytes > kInlineBytes && theirs.small_slots < 8 * theirs.channels);
  untold_ += is_scarce ? kEnough : entry.bytes > kInlineBytes ? kSmallSlot : 1;
  if (untold_ >= kEnough) publish();
}

void Incoming::publish() noexcept {
  const std::uint64_t told = consumed_;
  untold_ = 0;
  // Up to the oldest that is looked at.
  while (consumed_ < next_ && (viewed_ >> consumed_ % kEntries & 1) == 0) ++consumed_;
  if (consumed_ == told && granted_ == granted_told_) return;
  granted_told_ = granted_;
  delay();
  credit_->consumed.store(consumed_, std::memory_order_release);
  delay();
  credit_->fetched.store(fetched_, std::memory_order_relaxed);
  delay();
  credit_->granted.store(granted_, std::memory_order_release);
  // The sender may sleep for want of room.
  sender_.wake();
}

/// A sender of the same build writes nothing else; another's is not believed.
bool Incoming::is_sound(const Entry& entry) const noexcept {
  const Geometry& geometry = segment_->geometry();
  if (entry.id >= kStreams) return false;
  switch (entry.kind) {
    case EntryKind::eager: return entry.bytes <= kInlineBytes;
    case EntryKind::slotted:
    case EntryKind::fragment:
      return entry.slot < geometry.slots() && entry.bytes <= geometry.slot_bytes(entry.slot);
    case EntryKind::announce:
    case EntryKind::closed: return true;
  }
  return false;
}

void Incoming::take(const Entry& entry) {
  delay();
  bool goes_on = is_sound(entry);
  if (goes_on) {
    switch (entry.kind) {
      case EntryKind::eager: take_message(entry, entry.payload.data()); break;
      case EntryKind::slotted: take_message(entry, segment_->slot(entry.slot)); break;
      case EntryKind::announce: goes_on = take_announcement(entry); break;
      case EntryKind::fragment: goes_on = take_fragment(entry, segment_->slot(entry.slot)); break;
      case EntryKind::closed: goes_on = false; break;
    }
  }
  if (!goes_on) end();
}

// ---- messages ----

void Incoming::take_message(const Entry& entry, const std::byte* data) {
  Receive receive;
  if (matcher_->take_receive(entry.tag, receive)) {
    outcomes_->push_back(receive.wants_view
                             ? Outcome{receive.operation, Code::ok, entry.bytes, show(data)}
                             : copy_out(receive, entry.tag, data, entry.bytes));
    return;
  }
  Arrived& arrived = matcher_->keep(entry.tag, entry.bytes, false);
  delay();
  if (entry.bytes > 0) std::memcpy(arrived.payload.data(), data, entry.bytes);
}

/// Keeps the entry that is taken where it is.
View Incoming::show(const std::byte* data) noexcept {
  const auto place = static_cast<std::uint32_t>(next_ % kEntries);
  viewed_ |= std::uint64_t{1} << place;
  return {data, pack({channel_, place})};
}

bool Incoming::take_view(Tag tag, std::uint64_t bytes, View& view) noexcept {
  if (!has_entry()) return false;
  const Entry& entry = ring_[next_ % kEntries];
  delay();
  const bool is_message = entry.kind == EntryKind::eager || entry.kind == EntryKind::slotted;
  if (entry.tag != tag || !is_message || !is_sound(entry)) return false;
  if (bytes != kAnySize && entry.bytes != bytes) return false;
  view = show(data_of(entry));
  view.bytes = entry.bytes;
  ++next_;
  return true;
}

const std::byte* Incoming::data_of(const Entry& entry) const noexcept {
  return entry.kind == EntryKind::eager ? entry.payload.data() : segment_->slot(entry.slot);
}

bool Incoming::release(std::uint32_t place) noexcept {
  if (place >= kEntries) {
    const auto id = static_cast<std::uint8_t>(place - kEntries);
    const bool is_whole = !is_withdrawn();
    memory_->release(streams_[id].location);
    end_here(id);
    return is_whole;
  }
  viewed_ &= ~(std::uint64_t{1} << place);
  note_taken(ring_[place]);
  return true;
}

bool Incoming::take_announcement(const Entry& entry) {
  Stream& stream = streams_[entry.id];
  if (stream.use != Stream::Use::free) return false;
  stream = {Stream::Use::announced, false, entry.tag, entry.bytes, 0, {}, {}};
  std::memcpy(&stream.location, entry.payload.data(), sizeof stream.location);
  ++open_streams_;
  Receive receive;
  if (matcher_->take_receive(entry.tag, receive)) {
    meet(entry.id, receive);
  } else {
    matcher_->keep(entry.tag, entry.bytes, true).stream = {channel_, entry.id};
  }
  return true;
}

void Incoming::meet(std::uint8_t id, const Receive& receive) {
  Stream& stream = streams_[id];
  stream.use = Stream::Use::met;
  stream.receive = receive;
  if (receive.sender_tag != nullptr) *receive.sender_tag = stream.tag;
  const bool can_show = receive.wants_view && stream.location.where == Location::Where::shared;
  if (!can_show && !fits(receive, stream.bytes)) {
    outcomes_->push_back({receive.operation, Code::mismatch, 0, {}});
    return refuse(id);
  }
  if (!memory_->can_read(stream.location)) return take_through_slots(id);
  // Not here: who posts a receive does not wait for a copy.
  fetching_ |= bit_of(id);
}

void Incoming::refuse(std::uint8_t id) {
  Stream& stream = streams_[id];
  if (stream.location.where != Location::Where::nowhere) return end_here(id);
  stream.use = Stream::Use::dropped;
  grant(id, false);
  publish();
}

void Incoming::take_through_slots(std::uint8_t id) {
  fetching_ &= ~bit_of(id);
  streams_[id].received = 0;
  grant(id, false);
  publish();
}

void Incoming::grant(std::uint8_t id, bool is_fetched) noexcept {
  const std::uint64_t bit = bit_of(id);
  granted_ ^= bit;
  fetched_ = is_fetched ? fetched_ | bit : fetched_ & ~bit;
}

// ---- messages that stay where they lie ----

unsigned Incoming::fetch_pieces() {
  unsigned count = 0;
  for (std::uint64_t left = fetching_; left != 0; left &= left - 1, ++count) {
    fetch(static_cast<std::uint8_t>(std::countr_zero(left)));
  }
  return count;
}

/// Copies the next bytes of a stream to where they belong: past the cache, if it is too long to
/// stay there.
void Incoming::bring(const Stream& stream, const std::byte* data, std::uint64_t bytes) noexcept {
  constexpr std::uint64_t kCached = 8 << 20;
  auto* target = static_cast<std::byte*>(stream.receive.target.data) + stream.received;
  if (stream.bytes >= kCached) return copy_past_cache(target, data, bytes);
  std::memcpy(target, data, bytes);
}

/// Shows a stream, or copies a piece of it.
void Incoming::fetch(std::uint8_t id) {
  Stream& stream = streams_[id];
  const Receive& receive = stream.receive;
  const std::uint64_t at = stream.received;
  const std::uint64_t bytes = std::min(kPiece, stream.bytes - at);
  delay();
  if (stream.location.where == Location::Where::shared) {
    const std::byte* data = memory_->find(stream.location, stream.bytes);
    if (data == nullptr && !std::exchange(stream.has_looked, true)) return memory_->look();
    if (data == nullptr && fits(receive, stream.bytes)) return take_through_slots(id);
    if (data == nullptr) return end_with(id, Code::mismatch);
    if (receive.wants_view) {
      fetching_ &= ~bit_of(id);
      stream.use = Stream::Use::viewed;
      memory_->hold(stream.location);
      const View view{.data = data, .id = pack({channel_, kEntries + id}), .may_change = true};
      outcomes_->push_back({receive.operation, Code::ok, stream.bytes, view});
      return;
    }
    bring(stream, data + at, bytes);
  } else if (!memory_->pull(static_cast<std::byte*>(receive.target.data) + at,
                            stream.location.at + at, bytes)) {
    return is_withdrawn() ? end_with(id, Code::peer_lost) : take_through_slots(id);
  }
  stream.received += bytes;
  if (stream.received < stream.bytes) return;
  if (is_withdrawn()) return end_with(id, Code::peer_lost);
  outcomes_->push_back({receive.operation, Code::ok, stream.bytes});
  end_here(id);
}

/// Of what was read before.
bool Incoming::is_withdrawn() const noexcept {
  delay();
  std::atomic_thread_fence(std::memory_order_acquire);
  return withdrawal_->withdrawn.load(std::memory_order_relaxed) != 0;
}

void Incoming::end_with(std::uint8_t id, Code code) noexcept {
  outcomes_->push_back({streams_[id].receive.operation, code, 0});
  end_here(id);
}

/// The sender may go on without sending anything of it.
void Incoming::end_here(std::uint8_t id) noexcept {
  end_stream(id);
  grant(id, true);
  publish();
}

void Incoming::end_stream(std::uint8_t id) noexcept {
  fetching_ &= ~bit_of(id);
  streams_[id].use = Stream::Use::free;
  if (open_streams_ > 0) --open_streams_;
}

bool Incoming::take_fragment(const Entry& entry, const std::byte* data) {
  Stream& stream = streams_[entry.id];
  const bool is_due = stream.use == Stream::Use::met || stream.use == Stream::Use::dropped;
  if (!is_due || entry.bytes > stream.bytes - stream.received) return false;
  if ((fetching_ & bit_of(entry.id)) != 0) return false;
  delay();
  if (stream.use == Stream::Use::met) bring(stream, data, entry.bytes);
  stream.received += entry.bytes;
  if (stream.received < stream.bytes) return true;
  if (stream.use == Stream::Use::met) {
    outcomes_->push_back({stream.receive.operation, Code::ok, stream.bytes});
  }
  end_stream(entry.id);
  return true;
}

// ---- the end ----

void Incoming::give_up() {
  if (open_streams_ == 0) return;
  matcher_->drop_streams(channel_);
  for (std::uint8_t id = 0; id < kStreams; ++id) {
    Stream& stream = streams_[id];
    if (stream.use == Stream::Use::free || stream.use == Stream::Use::viewed) continue;
    if ((fetching_ & bit_of(id)) != 0) {
      end_with(id, Code::peer_lost);
      continue;
    }
    if (stream.use == Stream::Use::announced) {
      // Or the sender would wait for ever.
      refuse(id);
      continue;
    }
    if (stream.use == Stream::Use::met) {
      outcomes_->push_back({stream.receive.operation, Code::peer_lost, 0});
    }
    stream.use = Stream::Use::dropped;
  }
  publish();
}

void Incoming::end() {
  is_ended_ = true;
  give_up();
  open_streams_ = 0;
}

}  // namespace xylem::transport::shm
