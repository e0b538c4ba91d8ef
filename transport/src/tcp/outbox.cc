// SPDX-License-Identifier: Apache-2.0
#include "tcp/outbox.h"

#include "xylem/base/check.h"

#include <algorithm>
#include <ranges>
#include <utility>

namespace xylem::transport::tcp {

void Outbox::send(Tag tag, ConstRegion source, Operation& operation) {
  if (spare_.empty()) spare_.emplace_back();
  Outgoing& message = spare_.front();
  message = {.operation = &operation,
             .data = static_cast<const std::byte*>(source.data),
             .bytes = source.bytes,
             .tag = tag,
             .self = spare_.begin()};
  waiting_.splice(waiting_.end(), spare_, message.self);
}

bool Outbox::send_now(int fd, Tag tag, ConstRegion source) {
  if (source.bytes > kCopied || !is_eager(source.bytes) || has_more() || !writer_.has_room()) {
    return false;
  }
  credit_ -= weight_of(source.bytes);
  FrameHead head{.kind = FrameKind::eager,
                 .body = static_cast<std::uint32_t>(source.bytes),
                 .id = next_id_++,
                 .bytes = source.bytes};
  head.set_tag(tag);
  put(head, static_cast<const std::byte*>(source.data), FrameWriter::Body::copied, nullptr);
  // Bytes that the socket does not accept, and errors, are left to the next pump().
  writer_.write(fd, [this](Outgoing& message) { on_written(message); });
  return true;
}

void Outbox::return_credit(std::uint64_t bytes) {
  owed_ += bytes;
  if (owed_ < ahead_ / 4 || has_credit_frame_) return;
  send_control(FrameKind::credit, 0);
  has_credit_frame_ = true;
}

Outbox::Messages& Outbox::list_of(const Outgoing& message) noexcept {
  switch (message.state) {
    case Outgoing::State::waiting: return waiting_;
    case Outgoing::State::announced: return announced_;
    case Outgoing::State::streaming: return streaming_;
    case Outgoing::State::written: return written_;
  }
  return spare_;
}

void Outbox::move(Outgoing& message, Outgoing::State state) {
  Messages& from = list_of(message);
  message.state = state;
  Messages& to = list_of(message);
  to.splice(to.end(), from, message.self);
}

void Outbox::end(Outgoing& message) {
  outcomes_->push_back({message.operation, message.code, 0});
  constexpr std::size_t kMostSpare = 1024;
  Messages& from = list_of(message);
  if (spare_.size() < kMostSpare) {
    spare_.splice(spare_.begin(), from, message.self);
  } else {
    from.erase(message.self);
  }
}

void Outbox::put(FrameHead head, const std::byte* body, FrameWriter::Body how, Outgoing* owner) {
  head.credit = std::exchange(owed_, 0);
  if (owner != nullptr) ++owner->frames;
  writer_.put(head, body, how, owner);
}

void Outbox::put_control() {
  const Control control = controls_.front();
  controls_.pop_front();
  if (control.kind == FrameKind::credit) has_credit_frame_ = false;
  put({.kind = control.kind, .id = control.id}, nullptr, FrameWriter::Body::copied, nullptr);
}

void Outbox::put_first(Outgoing& message) {
  message.id = next_id_++;
  FrameHead head{.kind = FrameKind::announce, .id = message.id, .bytes = message.bytes};
  head.set_tag(message.tag);
  if (!is_eager(message.bytes)) {
    put(head, nullptr, FrameWriter::Body::copied, nullptr);
    return move(message, Outgoing::State::announced);
  }
  credit_ -= weight_of(message.bytes);
  head.kind = FrameKind::eager;
  head.body = static_cast<std::uint32_t>(std::min<std::uint64_t>(message.bytes, kLargestBody));
  message.sent = head.body;
  const bool is_whole = head.body == message.bytes;
  const bool is_copied = message.bytes <= kCopied;
  put(head, message.data, is_copied ? FrameWriter::Body::copied : FrameWriter::Body::borrowed,
      is_copied ? nullptr : &message);
  if (is_copied) return end(message);
  move(message, is_whole ? Outgoing::State::written : Outgoing::State::streaming);
}

void Outbox::put_data(Outgoing& message) {
  const auto body = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(message.bytes - message.sent, kLargestBody));
  put({.kind = FrameKind::data, .body = body, .id = message.id}, message.data + message.sent,
      FrameWriter::Body::borrowed, &message);
  message.sent += body;
  if (message.sent == message.bytes) move(message, Outgoing::State::written);
}

/// In turn the message that has streamed for longest and that with the fewest bytes left. Messages
/// of equal size are thus sent one after the other: the receiver can pass on the first while the
/// second arrives. A long message neither waits for all short ones nor makes them wait. Every
/// message has been sent at the latest when twice the bytes of it and of those that began before it
/// have been.
Outgoing& Outbox::next_streaming() {
  constexpr int kMostCompared = 16;
  prefers_short_ = !prefers_short_;
  if (!prefers_short_) return streaming_.front();
  const auto left = [](const Outgoing& message) { return message.bytes - message.sent; };
  return *std::ranges::min_element(streaming_ | std::views::take(kMostCompared), {}, left);
}

void Outbox::fill() {
  while (writer_.has_room()) {
    if (!controls_.empty()) {
      put_control();
    } else if (!streaming_.empty() && (streams_next_ || waiting_.empty())) {
      streams_next_ = false;
      put_data(next_streaming());
    } else if (!waiting_.empty()) {
      streams_next_ = true;
      put_first(waiting_.front());
    } else {
      return;
    }
  }
}

Io Outbox::pump(int fd) {
  // The number of writes is bounded, so that a long message does not prevent this thread from
  // reading.
  constexpr int kMostWrites = 8;
  Io io = Io::more;
  for (int i = 0; i < kMostWrites; ++i) {
    fill();
    if (writer_.is_empty()) return Io::more;
    io = writer_.write(fd, [this](Outgoing& message) { on_written(message); });
    if (io != Io::more) return io;
  }
  return io;
}

void Outbox::on_written(Outgoing& message) {
  --message.frames;
  if (message.frames == 0 && message.state == Outgoing::State::written) end(message);
}

Outgoing* Outbox::find(Messages& messages, std::uint64_t id) noexcept {
  const auto at = std::ranges::find(messages, id, &Outgoing::id);
  return at == messages.end() ? nullptr : &*at;
}

// The peer may send go or drop for a message that has been withdrawn. Such a frame is ignored.

void Outbox::on_go(std::uint64_t id) {
  if (Outgoing* const message = find(announced_, id)) move(*message, Outgoing::State::streaming);
}

void Outbox::on_drop(std::uint64_t id) {
  if (Outgoing* const message = find(announced_, id)) return end(*message);
  if (Outgoing* const message = find(streaming_, id)) withdraw(*message);
}

/// Stops sending a message. Frames that are already in the writer are still written.
void Outbox::withdraw(Outgoing& message) {
  send_control(FrameKind::withdraw, message.id);
  move(message, Outgoing::State::written);
  if (message.frames == 0) end(message);
}

bool Outbox::cancel(const Operation& operation) {
  for (Messages* list : {&waiting_, &announced_, &streaming_, &written_}) {
    const auto at = std::ranges::find(*list, &operation, &Outgoing::operation);
    if (at == list->end()) continue;
    Outgoing& message = *at;
    const bool is_in_part = list == &streaming_;
    // If the last frame is in the writer, the peer receives the whole message, so the code stays
    // ok.
    if (list != &written_) message.code = Code::cancelled;
    writer_.disown(message);
    message.frames = 0;
    if (is_in_part || list == &announced_) send_control(FrameKind::withdraw, message.id);
    end(message);
    return true;
  }
  return false;
}

void Outbox::end_all(Code code) {
  for (Messages* list : {&waiting_, &announced_, &streaming_, &written_}) {
    while (!list->empty()) {
      list->front().code = code;
      end(list->front());
    }
  }
  controls_.clear();
  writer_.clear();
}

}  // namespace xylem::transport::tcp
