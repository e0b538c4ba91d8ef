// SPDX-License-Identifier: Apache-2.0
#include "shm/incoming_streams.h"

#include "shm/delays.h"
#include "shm/hold.h"
#include "xylem/base/copy.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace xylem::transport::shm {
namespace {

/// The most bytes that are fetched at a time. Between two pieces, other channels make progress.
constexpr std::uint64_t kPiece = 512 << 10;

}  // namespace

// ---- announced ----

IncomingStreams::Taken IncomingStreams::announce(const Head& head, const Entry& entry) {
  Stream& stream = streams_[head.id];
  if (stream.use != Stream::Use::free) return Taken::never;
  Receive receive;
  const bool is_matched = matcher_->take_receive(head.tag, receive);
  const std::uint64_t weight = kNodeBytes + (head.id < kStreams / 2 ? 0 : kAnnouncedBytes);
  if (!is_matched && matcher_->keep({channel_, head.id}, head.tag, head.bytes, weight) == nullptr) {
    return Taken::no_memory;
  }
  stream = {Stream::Use::announced, false, head.tag, head.bytes, 0, {}, location_of(entry, head)};
  if (stream.location.where == Location::Where::device) {
    stream.place = payload_of<DevicePlace>(entry);
  }
  ++open_;
  if (is_matched) match(head.id, receive);
  return Taken::ok;
}

void IncomingStreams::match(std::uint8_t id, const Receive& receive) {
  Stream& stream = streams_[id];
  stream.use = Stream::Use::matched;
  stream.receive = receive;
  if (receive.sender_tag != nullptr) *receive.sender_tag = stream.tag;
  if (show_on_device(id)) return;
  const bool can_show =
      receive.wants_host_view() && stream.location.where == Location::Where::shared;
  if (!can_show && !receive.fits(stream.bytes)) {
    outcomes_->push_back({receive.operation, Code::mismatch, 0, {}});
    return refuse(id);
  }
  if (!memory_->can_read(stream.location)) return request_fragments(id);
  // fetch() copies the message later, so that posting a receive does not wait for the copy.
  fetching_ |= bit_of(id);
}

void IncomingStreams::refuse(std::uint8_t id) {
  Stream& stream = streams_[id];
  if (stream.location.where != Location::Where::nowhere) return end_here(id);
  stream.use = Stream::Use::dropped;
  grant(id, false);
}

void IncomingStreams::request_fragments(std::uint8_t id) {
  fetching_ &= ~bit_of(id);
  streams_[id].received = 0;
  grant(id, false);
}

void IncomingStreams::grant(std::uint8_t id, bool is_fetched) noexcept {
  const std::uint64_t bit = bit_of(id);
  granted_ ^= bit;
  fetched_ = is_fetched ? fetched_ | bit : fetched_ & ~bit;
  delay();
  credit_->fetched.store(fetched_, std::memory_order_relaxed);
  delay();
  credit_->granted.store(granted_, std::memory_order_release);
  sender_.wake();
}

// ---- reading in place ----

unsigned IncomingStreams::fetch() {
  unsigned count = 0;
  for (std::uint64_t left = fetching_; left != 0; left &= left - 1, ++count) {
    fetch_piece(static_cast<std::uint8_t>(std::countr_zero(left)));
  }
  return count;
}

/// Copies the next bytes of a stream to the target of its receive. Uses non-temporal stores if the
/// message is too long to stay in the cache.
void IncomingStreams::copy_to_target(const Stream& stream,
                                     const std::byte* data,
                                     std::uint64_t bytes) noexcept {
  constexpr std::uint64_t kCached = 8 << 20;
  auto* target = static_cast<std::byte*>(stream.receive.target.data) + stream.received;
  if (stream.bytes >= kCached) return copy_non_temporal(target, data, bytes);
  copy_bytes(target, data, bytes);
}

/// Shows a stream as a view, or copies the next piece of it.
void IncomingStreams::fetch_piece(std::uint8_t id) {
  Stream& stream = streams_[id];
  const Receive& receive = stream.receive;
  const std::uint64_t at = stream.received;
  const std::uint64_t bytes = std::min(kPiece, stream.bytes - at);
  delay();
  if (stream.location.where == Location::Where::shared) {
    const std::byte* data = memory_->find(stream.location, stream.bytes);
    if (data == nullptr && !std::exchange(stream.has_looked, true))
      return memory_->request_socket_poll();
    if (data == nullptr && receive.fits(stream.bytes)) return request_fragments(id);
    if (data == nullptr) return end_with(id, Code::mismatch);
    if (receive.wants_host_view()) return show(id, data);
    copy_to_target(stream, data + at, bytes);
  } else if (!memory_->pull(static_cast<std::byte*>(receive.target.data) + at,
                            stream.location.at + at, bytes)) {
    return is_withdrawn(id) ? end_with(id, withdrawal_code()) : request_fragments(id);
  }
  stream.received += bytes;
  if (stream.received < stream.bytes) return;
  end_with(id, is_withdrawn(id) ? withdrawal_code() : Code::ok);
}

void IncomingStreams::show(std::uint8_t id, const std::byte* data) {
  Stream& stream = streams_[id];
  fetching_ &= ~bit_of(id);
  stream.use = Stream::Use::viewed;
  memory_->hold(stream.location);
  const View view{.data = data, .id = pack({channel_, true, id}), .may_change = true};
  outcomes_->push_back({stream.receive.operation, Code::ok, stream.bytes, view});
}

/// If a stream is in device memory and the receive accepts a view, completes the receive: with a
/// view, or with an error if the message was withdrawn. Otherwise, or if the reader's device cannot
/// access the memory, returns false.
bool IncomingStreams::show_on_device(std::uint8_t id) {
  Stream& stream = streams_[id];
  const Receive& receive = stream.receive;
  const bool may_show = devices_ != nullptr && stream.location.where == Location::Where::device &&
                        receive.wants_view && receive.reader.kind != MemoryKind::host;
  if (!may_show) return false;
  // The sending application may have freed the memory of a message that was withdrawn.
  if (is_withdrawn(id)) {
    end_with(id, withdrawal_code());
    return true;
  }
  const std::byte* data = devices_->open(stream.place, stream.bytes, receive.reader);
  if (data == nullptr) return false;
  stream.use = Stream::Use::viewed;
  const View view{
      .data = data, .id = pack({channel_, true, id}), .may_change = true, .is_on_device = true};
  outcomes_->push_back({receive.operation, Code::ok, stream.bytes, view});
  return true;
}

bool IncomingStreams::release(std::uint8_t id) noexcept {
  const bool is_whole = !is_withdrawn(id);
  const Stream& stream = streams_[id];
  if (stream.location.where == Location::Where::device) {
    devices_->close(stream.place, stream.receive.reader);
  } else {
    memory_->release(stream.location);
  }
  end_here(id);
  return is_whole;
}

/// Whether the bytes read so far may have been overwritten.
bool IncomingStreams::is_withdrawn(std::uint8_t id) const noexcept {
  delay();
  std::atomic_thread_fence(std::memory_order_acquire);
  return (withdrawal_->withdrawn.load(std::memory_order_relaxed) & bit_of(id)) != 0;
}

/// The code for a receive whose message was withdrawn: cancelled if only this message was
/// withdrawn, peer_lost if the sender withdrew all its messages.
Code IncomingStreams::withdrawal_code() const noexcept {
  return ~withdrawal_->withdrawn.load(std::memory_order_relaxed) == 0 ? Code::peer_lost
                                                                      : Code::cancelled;
}

// ---- in fragments ----

bool IncomingStreams::take_fragment(const Head& head, const std::byte* data) {
  Stream& stream = streams_[head.id];
  const bool is_due = stream.use == Stream::Use::matched || stream.use == Stream::Use::dropped;
  if (!is_due || head.bytes > stream.bytes - stream.received) return false;
  if ((fetching_ & bit_of(head.id)) != 0) return false;
  delay();
  if (stream.use == Stream::Use::matched) copy_to_target(stream, data, head.bytes);
  stream.received += head.bytes;
  if (stream.received < stream.bytes) return true;
  if (stream.use == Stream::Use::matched) {
    outcomes_->push_back({stream.receive.operation, Code::ok, stream.bytes});
  }
  end_stream(head.id);
  return true;
}

// ---- the end ----

bool IncomingStreams::cancel(const Operation& operation) {
  for (std::uint8_t id = 0; id < kStreams; ++id) {
    Stream& stream = streams_[id];
    if (stream.use != Stream::Use::matched || stream.receive.operation != &operation) continue;
    if ((fetching_ & bit_of(id)) != 0) {
      end_with(id, Code::cancelled);
    } else {
      outcomes_->push_back({stream.receive.operation, Code::cancelled, 0});
      stream.use = Stream::Use::dropped;
    }
    return true;
  }
  return false;
}

/// A free stream has been finished by both sides. A viewed stream stays: release() checks whether
/// the message was withdrawn.
void IncomingStreams::withdraw(std::uint8_t id) {
  Stream& stream = streams_[id];
  switch (stream.use) {
    case Stream::Use::free:
    case Stream::Use::viewed: return;
    case Stream::Use::announced: matcher_->drop_stream({channel_, id}); return end_here(id);
    case Stream::Use::matched:
      if ((fetching_ & bit_of(id)) != 0) return end_with(id, Code::cancelled);
      outcomes_->push_back({stream.receive.operation, Code::cancelled, 0});
      return end_stream(id);
    case Stream::Use::dropped: return end_stream(id);
  }
}

/// Completes the receive of a stream that needs no fragments from the sender.
void IncomingStreams::end_with(std::uint8_t id, Code code) noexcept {
  const Stream& stream = streams_[id];
  outcomes_->push_back({stream.receive.operation, code, code == Code::ok ? stream.bytes : 0});
  end_here(id);
}

/// Ends a stream, and grants it as fetched, so that the sender sends no fragments.
void IncomingStreams::end_here(std::uint8_t id) noexcept {
  end_stream(id);
  grant(id, true);
}

void IncomingStreams::end_stream(std::uint8_t id) noexcept {
  fetching_ &= ~bit_of(id);
  streams_[id].use = Stream::Use::free;
  if (open_ > 0) --open_;
}

void IncomingStreams::abandon() {
  if (open_ == 0) return;
  matcher_->drop_streams(channel_);
  for (std::uint8_t id = 0; id < kStreams; ++id) {
    Stream& stream = streams_[id];
    if (stream.use == Stream::Use::free || stream.use == Stream::Use::viewed) continue;
    if ((fetching_ & bit_of(id)) != 0) {
      end_with(id, Code::peer_lost);
      continue;
    }
    if (stream.use == Stream::Use::announced) {
      // refuse() grants the stream; without a grant, the sender would wait forever.
      refuse(id);
      continue;
    }
    if (stream.use == Stream::Use::matched) {
      outcomes_->push_back({stream.receive.operation, Code::peer_lost, 0});
    }
    stream.use = Stream::Use::dropped;
  }
}

void IncomingStreams::end() {
  abandon();
  open_ = 0;
}

}  // namespace xylem::transport::shm
