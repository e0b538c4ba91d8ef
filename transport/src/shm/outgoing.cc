// SPDX-License-Identifier: Apache-2.0
#include "shm/outgoing.h"

#include "receive.h"
#include "shm/delays.h"
#include "xylem/base/check.h"
#include "xylem/base/copy.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace xylem::transport::shm {
namespace {

/// A mask of the stream numbers that a message may take when it is announced. The lower half of the
/// numbers is for messages that would fit into a slot, the upper half for longer messages.
constexpr std::uint64_t numbers_for(bool fits_slot) noexcept {
  constexpr std::uint64_t kLow = bit_of(kStreams / 2) - 1;
  return fits_slot ? kLow : ~kLow;
}

}  // namespace

void Outgoing::open(const Owner& receiver, const Credit& credit) noexcept {
  receiver_ = receiver;
  credit_ = &credit;
  // The receiver may be asleep while entries already wait in the ring.
  receiver_.wake();
}

// ---- the ring ----

bool Outgoing::retire() noexcept {
  if (credit_ == nullptr) return false;
  delay();
  // Never trust the receiver beyond what was sent.
  const std::uint64_t consumed = std::min(credit_->consumed.load(std::memory_order_acquire), next_);
  const bool has_any = retired_ < consumed;
  retire_until(consumed);
  heed_holds();
  return has_any;
}

// Wants apply only to the hold during which they were sent.
void Outgoing::heed_holds() noexcept {
  const std::uint64_t holds = credit_->holds.load(std::memory_order_relaxed);
  if (holds == holds_) return;
  holds_ = holds;
  wants_.clear();
}

void Outgoing::retire_until(std::uint64_t entry) noexcept {
  for (; retired_ < entry; ++retired_) {
    const std::uint32_t slot = slot_of_[retired_ % kEntries];
    if (slot != kNoSlot) slots_->give_back(slot);
  }
}

/// Prepares the next entry; publish() makes it visible. Null if the ring is full.
Entry* Outgoing::next_entry(EntryKind kind, Tag tag, std::uint64_t bytes) noexcept {
  if (next_ - retired_ == kEntries) retire();
  if (next_ - retired_ == kEntries) return nullptr;
  Entry& entry = ring_[next_ % kEntries];
  slot_of_[next_ % kEntries] = kNoSlot;
  delay();
  entry.kind = kind;
  delay();
  entry.name = static_cast<std::uint64_t>(tag);
  delay();
  entry.size_and_check = kind == EntryKind::want ? bytes : packed(bytes, tag);
  return &entry;
}

void Outgoing::publish() noexcept { publish(next_++); }

void Outgoing::publish(std::uint64_t number) noexcept {
  delay();
  ring_[number % kEntries].turn.store(turn_of(number), std::memory_order_release);
  receiver_.wake();
}

/// Publishes the entry that fill() has filled, unless a device still fills it.
void Outgoing::publish_filled() noexcept {
  if (fillings_.empty() || fillings_.back().entry != next_) return publish();
  ++next_;
}

// ---- messages ----

bool Outgoing::fits_slot(const Sending& sending) const noexcept {
  return sending.message.bytes <= segment_->geometry().large_bytes;
}

bool Outgoing::is_announced(const Sending& sending) const noexcept {
  return sending.message.location.where != Location::Where::nowhere || !fits_slot(sending);
}

Room Outgoing::room() noexcept {
  if (!is_open() || receiver_.is_gone()) return Room::never;
  retire();
  // Under a hold, messages must be queued until the receiver asks for them, and send() keeps their
  // order.
  if (is_hold(holds_) || !cleared_.empty() || !numberless_.empty()) return Room::never;
  // Messages in the queue must be sent before this one.
  return queue_.empty() && next_ - retired_ < kEntries ? Room::given : Room::later;
}

std::uint32_t Outgoing::unread() noexcept {
  if (room() == Room::never) return 0;
  return static_cast<std::uint32_t>(next_ - retired_);
}

bool Outgoing::has_slots_out() const noexcept {
  for (std::uint64_t entry = retired_; entry < next_; ++entry) {
    if (slot_of_[entry % kEntries] != kNoSlot) return true;
  }
  return false;
}

void Outgoing::put(Tag tag, std::uint32_t slot, std::uint64_t bytes) {
  Entry* entry = next_entry(EntryKind::slotted, tag, bytes);
  XYLEM_CHECK(entry != nullptr, channel_);
  slot_of_[next_ % kEntries] = slot;
  entry->slot = static_cast<std::uint16_t>(slot);
  entry->id = 0;
  publish();
}

/// Writes the next `bytes` of a message into the next entry or its slot, or lets a device write
/// them. Host memory is written into slots in the faster way, or in the other way for a trial.
/// False if device memory cannot be read.
bool Outgoing::fill(std::byte* target, Sending& sending, std::uint64_t bytes) {
  const Outbound& message = sending.message;
  const std::byte* data = message.data + sending.sent;
  sending.sent += bytes;
  delay();
  if (message.memory.kind != MemoryKind::host) {
    const DeviceRead read = devices_->begin_read(target, {data, bytes, message.memory});
    if (read.number == 0) return false;
    fillings_.push_back({next_, read, sending.operation});
    ++sending.copies;
    return true;
  }
  if (bytes < CacheChoice::kLeastBytes) {
    copy_bytes(target, data, bytes);
    return true;
  }
  const bool past_cache = cache_choice_.is_past_cache() != cache_choice_.is_trial();
  cache_choice_.learn(past_cache, copy_timed({target, past_cache}, data, bytes));
  return true;
}

/// Copies `bytes` of the message into a slot, and publishes an entry for it when they are there.
Outgoing::Begun Outgoing::put_slot(EntryKind kind, Sending& sending, std::uint64_t bytes) {
  Entry* entry = next_entry(kind, sending.tag, bytes);
  if (entry == nullptr) return Begun::no_room;
  auto slot = slots_->take(channel_, bytes);
  if (!slot && retire()) slot = slots_->take(channel_, bytes);
  if (!slot) return Begun::no_room;
  if (!fill(segment_->slot(*slot), sending, bytes)) {
    slots_->give_back(*slot);
    return Begun::failed;
  }
  slot_of_[next_ % kEntries] = *slot;
  entry->slot = static_cast<std::uint16_t>(*slot);
  entry->id = sending.id;
  publish_filled();
  return Begun::well;
}

/// Whether a stream number is free for the message. Messages too long for a slot may use only half
/// of the numbers for such messages, unless their receives are posted (then they are wanted:
/// want.h). So a wanted message never waits for unwanted messages.
bool Outgoing::has_number(const Sending& sending, bool is_wanted) const noexcept {
  constexpr int kUnwanted = kStreams / 4;
  const bool fits = fits_slot(sending);
  const std::uint64_t mine = numbers_for(fits);
  const int in_use = std::popcount(streams_used_ & mine);
  return in_use < (fits || is_wanted ? std::popcount(mine) : kUnwanted);
}

Outgoing::Begun Outgoing::announce(Sending& sending, bool is_wanted) {
  if (!has_number(sending, is_wanted)) return Begun::no_number;
  const Outbound& message = sending.message;
  Entry* entry = next_entry(EntryKind::announce, sending.tag, message.bytes);
  if (entry == nullptr) return Begun::no_room;
  const std::uint64_t free = ~streams_used_ & numbers_for(fits_slot(sending));
  sending.id = static_cast<std::uint8_t>(std::countr_zero(free));
  streams_used_ |= bit_of(sending.id);
  entry->id = sending.id;
  delay();
  const bool is_on_device = message.location.where == Location::Where::device;
  entry->slot = is_on_device ? kOnDevice : 0;
  if (is_on_device) {
    std::memcpy(entry->payload.data(), &message.place, sizeof message.place);
  } else {
    std::memcpy(entry->payload.data(), &message.location, sizeof message.location);
  }
  publish();
  return Begun::well;
}

/// Puts a message into the ring, either whole or as an announcement.
Outgoing::Begun Outgoing::begin(Sending& sending, bool is_wanted) {
  const std::uint64_t bytes = sending.message.bytes;
  if (fits_slot(sending) && !has_number(sending, is_wanted)) sending.message.location = {};
  if (is_announced(sending)) return announce(sending, is_wanted);
  return bytes > kInlineBytes ? put_slot(EntryKind::slotted, sending, bytes) : put_inline(sending);
}

Posted Outgoing::send(Tag tag, const Outbound& message, Operation& operation) {
  operation.code = Code::ok;
  operation.bytes = 0;
  if (!is_open() || receiver_.is_gone()) {
    operation.code = Code::peer_lost;
    return Posted::done;
  }
  Sending sending{&operation, message, 0, tag};
  const bool is_next = cleared_.empty() && numberless_.empty() && queue_.empty();
  const Begun begun =
      is_next && !is_hold(holds_) ? begin(sending, /*is_wanted=*/false) : Begun::no_room;
  if (begun == Begun::failed) {
    operation.code = Code::internal;
    return Posted::done;
  }
  if (begun == Begun::well && !is_announced(sending) && sending.copies == 0) return Posted::done;
  if (begun == Begun::well) {
    append(is_announced(sending) ? streams_ : copied_, sending);
    return Posted::pending;
  }
  append(is_hold(holds_) && take_want(tag) ? cleared_ : queue_, sending);
  // Under a hold, wanted messages may be sent now; otherwise this message may overtake the messages
  // that wait for a stream number.
  if (!cleared_.empty() || !numberless_.empty()) pump_queue();
  return Posted::pending;
}

void Outgoing::append(Sendings& list, const Sending& sending) {
  if (spare_.empty()) spare_.emplace_back();
  list.splice(list.end(), spare_, spare_.begin());
  list.back() = sending;
}

bool Outgoing::send_inline(Tag tag, const std::byte* data, std::uint64_t bytes) {
  if (bytes > kInlineBytes || room() != Room::given) return false;
  return put_inline(tag, data, bytes);
}

Outgoing::Begun Outgoing::put_inline(Sending& sending) {
  Entry* entry = next_entry(EntryKind::eager, sending.tag, sending.message.bytes);
  if (entry == nullptr) return Begun::no_room;
  if (!fill(entry->payload.data(), sending, sending.message.bytes)) return Begun::failed;
  publish_filled();
  return Begun::well;
}

/// Puts a short message into an entry. False if the ring is full.
bool Outgoing::put_inline(Tag tag, const std::byte* data, std::uint64_t bytes) noexcept {
  Entry* entry = next_entry(EntryKind::eager, tag, bytes);
  if (entry == nullptr) return false;
  delay();
  copy_bytes(entry->payload.data(), data, bytes);
  publish();
  return true;
}

// ---- under a hold ----

bool Outgoing::take_want(Tag tag) noexcept {
  const auto want = std::ranges::find_if(
      wants_, [tag](const Want& awaited) { return tag_matches(tag, awaited.tag, awaited.mask); });
  if (want == wants_.end()) return false;
  wants_.erase(want);
  return true;
}

void Outgoing::heed(const Want& want, std::uint64_t holds) {
  if (credit_ == nullptr || !is_open()) return;
  delay();
  heed_holds();
  if (holds != holds_) return;
  for (Sendings* list : {&numberless_, &queue_}) {
    const auto at = std::ranges::find_if(*list, [&](const Sending& sending) {
      return tag_matches(sending.tag, want.tag, want.mask);
    });
    if (at == list->end()) continue;
    cleared_.splice(cleared_.end(), *list, at);
    return;
  }
  wants_.push_back(want);
}

bool Outgoing::tell(const Want& want, std::uint64_t holds) noexcept {
  if (!is_open()) return true;  // Nothing more will come from that peer.
  Entry* entry = next_entry(EntryKind::want, want.tag, static_cast<std::uint64_t>(want.mask));
  if (entry == nullptr) return false;
  std::memcpy(entry->payload.data(), &holds, sizeof holds);
  publish();
  return true;
}

/// Ends a send, at once or when no device copies its pieces any more.
void Outgoing::end(Sendings& list, Sendings::iterator at, Code code) {
  if (at->copies > 0) {
    at->code = code;
    return copied_.splice(copied_.end(), list, at);
  }
  outcomes_->push_back({at->operation, code, 0});
  spare_.splice(spare_.begin(), list, at);
}

unsigned Outgoing::pump() {
  // Check this first, so that everything the receiver reported before it ended is still processed.
  const bool is_gone = receiver_.is_gone();
  retire();
  unsigned count = pump_copies();
  count += pump_streams(is_gone);
  if (is_gone) {
    lose();
    withdrawn_.clear();
    standing_ = Standing::closed;
    return count + 1;
  }
  count += pump_withdrawn();
  count += pump_queue();
  if (standing_ == Standing::closing && next_entry(EntryKind::closed, 0, 0) != nullptr) {
    publish();
    standing_ = Standing::closed;
    ++count;
  }
  return count;
}

/// Publishes the entries that devices have filled. Those that could not be filled are published,
/// too, since others follow.
unsigned Outgoing::pump_copies() {
  return static_cast<unsigned>(std::erase_if(fillings_, [this](const Filling& filling) {
    const DeviceRead::State state = devices_->state_of(filling.read);
    if (state == DeviceRead::State::pending) return false;
    const bool has_failed = state == DeviceRead::State::failed;
    if (has_failed) ring_[filling.entry % kEntries].kind = EntryKind::nothing;
    publish(filling.entry);
    copy_ended(*filling.operation, has_failed);
    return true;
  }));
}

void Outgoing::copy_ended(const Operation& operation, bool has_failed) {
  for (Sendings* list : {&streams_, &copied_}) {
    const auto at = std::ranges::find(*list, &operation, &Sending::operation);
    if (at == list->end()) continue;
    --at->copies;
    if (list == &streams_) {
      if (has_failed) return withdraw_one(at, Code::internal);
      if (at->copies == 0 && at->sent == at->message.bytes) end_stream(at);
      return;
    }
    if (has_failed && at->code == Code::ok) at->code = Code::internal;
    return end(copied_, at, at->code);
  }
}

/// Ends a stream of which the receiver has everything, or will find it in the ring.
void Outgoing::end_stream(Sendings::iterator at) {
  granted_ ^= bit_of(at->id);
  free_stream(at->id);
  end(streams_, at);
}

/// Ends streams that the receiver has fetched. For the other granted streams, sends as many
/// fragments as there is room for, unless the receiver is gone.
unsigned Outgoing::pump_streams(bool is_gone) {
  unsigned count = 0;
  bool has_slots = !is_gone;
  delay();
  const std::uint64_t granted =
      credit_ == nullptr ? 0 : credit_->granted.load(std::memory_order_acquire);
  if (granted == granted_) return 0;
  delay();
  const std::uint64_t fetched = credit_->fetched.load(std::memory_order_relaxed);
  const std::uint64_t most = segment_->geometry().large_bytes;
  for (auto it = streams_.begin(); it != streams_.end();) {
    const auto at = it++;
    const std::uint64_t bit = bit_of(at->id);
    if (((granted ^ granted_) & bit) == 0) continue;
    const std::uint64_t bytes = at->message.bytes;
    if ((fetched & bit) != 0) {
      at->sent = bytes;
      ++count;
    }
    Begun put = Begun::well;
    while (has_slots && at->sent < bytes && put == Begun::well) {
      put = put_slot(EntryKind::fragment, *at, std::min(most, bytes - at->sent));
      if (put == Begun::well) ++count;
    }
    if (put == Begun::failed) {
      withdraw_one(at, Code::internal);
      continue;
    }
    if (at->sent < bytes) {
      has_slots = false;
      continue;
    }
    if (at->copies == 0) end_stream(at);
  }
  return count;
}

/// Tells the receiver about withdrawn streams that it has not fetched, and frees the numbers of the
/// streams with which the receiver has finished.
unsigned Outgoing::pump_withdrawn() {
  if (withdrawn_.empty()) return 0;
  unsigned count = 0;
  delay();
  const std::uint64_t granted =
      credit_ == nullptr ? 0 : credit_->granted.load(std::memory_order_acquire);
  delay();
  const std::uint64_t fetched =
      credit_ == nullptr ? 0 : credit_->fetched.load(std::memory_order_relaxed);
  std::erase_if(withdrawn_, [&](Withdrawn& stream) {
    const std::uint64_t bit = bit_of(stream.id);
    const bool is_granted = ((granted ^ granted_) & bit) != 0;
    const bool is_fetched = is_granted && (fetched & bit) != 0;
    if (!stream.is_told && !is_fetched) {
      Entry* entry = next_entry(EntryKind::withdrawn, 0, 0);
      if (entry == nullptr) return false;
      entry->id = stream.id;
      publish();
      stream.is_told = true;
      ++count;
    }
    if (!is_granted) return false;
    granted_ ^= bit;
    free_stream(stream.id);
    ++count;
    return true;
  });
  return count;
}

void Outgoing::free_stream(std::uint8_t id) noexcept {
  streams_used_ &= ~bit_of(id);
  if (!is_open() || (streams_withdrawn_ & bit_of(id)) == 0) return;
  streams_withdrawn_ &= ~bit_of(id);
  delay();
  segment_->withdrawal(channel_).withdrawn.store(streams_withdrawn_, std::memory_order_relaxed);
}

unsigned Outgoing::pump_queue() {
  unsigned count = 0;
  if (!pump_list(cleared_, /*is_wanted=*/true, count) || is_hold(holds_)) return count;
  if (pump_list(numberless_, false, count)) pump_list(queue_, false, count);
  return count;
}

/// Begins the messages of a list in order; false if there is no room for more. In the queue, a
/// message that gets no stream number moves to `numberless_`, and so does a later message with the
/// same tag.
bool Outgoing::pump_list(Sendings& list, bool is_wanted, unsigned& count) {
  const bool is_queue = &list == &queue_;
  const auto must_follow = [&](const Sending& sending) {
    if (!is_queue || numberless_.empty()) return false;
    return !fits_slot(sending) ||
           std::ranges::find(numberless_, sending.tag, &Sending::tag) != numberless_.end();
  };
  for (auto it = list.begin(); it != list.end();) {
    const auto at = it++;
    const Begun begun = must_follow(*at) ? Begun::no_number : begin(*at, is_wanted);
    if (begun == Begun::no_room) return false;
    if (begun == Begun::no_number && !is_queue) return !is_wanted;
    if (begun == Begun::no_number) {
      numberless_.splice(numberless_.end(), list, at);
      continue;
    }
    ++count;
    if (begun == Begun::failed) {
      end(list, at, Code::internal);
    } else if (is_announced(*at)) {
      streams_.splice(streams_.end(), list, at);
    } else {
      end(list, at);
    }
  }
  return true;
}

// ---- the end ----

/// Marks these streams as withdrawn: their users may overwrite the buffers after this call.
void Outgoing::withdraw(std::uint64_t streams) noexcept {
  streams_withdrawn_ |= streams;
  delay();
  segment_->withdrawal(channel_).withdrawn.store(streams_withdrawn_, std::memory_order_relaxed);
  delay();
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

/// Ends the send of a stream, of which the receiver may have a part.
void Outgoing::withdraw_one(Sendings::iterator at, Code code) {
  withdraw(bit_of(at->id));
  withdrawn_.push_back({at->id, false});
  end(streams_, at, code);
}

bool Outgoing::cancel(const Operation& operation) {
  for (Sendings* list : {&cleared_, &numberless_, &queue_, &streams_, &copied_}) {
    const auto at = std::ranges::find(*list, &operation, &Sending::operation);
    if (at == list->end()) continue;
    const bool is_all_in_ring =
        list == &copied_ || (at->copies > 0 && at->sent == at->message.bytes);
    if (is_all_in_ring) return true;
    if (list == &streams_) {
      withdraw_one(at, Code::cancelled);
    } else {
      end(*list, at, Code::cancelled);
    }
    pump_withdrawn();
    return true;
  }
  return false;
}

void Outgoing::lose() {
  for (Sendings* list : {&cleared_, &numberless_, &queue_, &streams_}) {
    while (!list->empty()) end(*list, list->begin(), Code::peer_lost);
  }
}

void Outgoing::close(bool has_heard) {
  if (!is_open()) return;
  withdraw(~std::uint64_t{0});
  withdrawn_.clear();
  lose();
  standing_ = has_heard ? Standing::closing : Standing::closed;
  if (has_heard) pump();
}

}  // namespace xylem::transport::shm
