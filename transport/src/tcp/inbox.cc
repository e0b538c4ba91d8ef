// SPDX-License-Identifier: Apache-2.0
#include "tcp/inbox.h"

#include "xylem/base/copy.h"

#include <algorithm>
#include <new>
#include <utility>

namespace xylem::transport::tcp {

Incoming& Inbox::add(const FrameHead& head) {
  if (spare_.empty()) spare_.emplace_back();
  Incoming& message = spare_.front();
  message = {.id = head.id, .tag = head.tag(), .bytes = head.bytes, .self = spare_.begin()};
  Messages& bucket = messages_[head.id % kBuckets];
  bucket.splice(bucket.end(), spare_, message.self);
  return message;
}

Incoming* Inbox::find(std::uint64_t id) noexcept {
  Messages& bucket = messages_[id % kBuckets];
  const auto at = std::ranges::find(bucket, id, &Incoming::id);
  return at == bucket.end() ? nullptr : &*at;
}

void Inbox::release(Incoming& message) {
  constexpr std::size_t kMostSpare = 256;
  message.memory.reset();
  Messages& bucket = messages_[message.id % kBuckets];
  if (spare_.size() < kMostSpare) {
    spare_.splice(spare_.begin(), bucket, message.self);
  } else {
    bucket.erase(message.self);
  }
}

/// Returns the credit of an eager message to its sender. Call this when the message occupies no
/// memory.
void Inbox::return_credit(const Incoming& message) {
  if (message.is_eager) outbox_->return_credit(weight_of(message.bytes));
}

std::byte* Inbox::place_of(Incoming& message) const noexcept {
  if (message.is_sunk) return nullptr;
  auto* const place =
      message.memory ? message.memory.get() : static_cast<std::byte*>(message.receive.target.data);
  return place + message.got;
}

/// Whether the protocol allows this head.
bool Inbox::is_sane(const FrameHead& head) const noexcept {
  switch (head.kind) {
    case FrameKind::eager:
      return head.bytes <= kLargestEager &&
             head.body == std::min<std::uint64_t>(head.bytes, kLargestBody);
    case FrameKind::data: return true;
    case FrameKind::announce:
    case FrameKind::go:
    case FrameKind::drop:
    case FrameKind::withdraw:
    case FrameKind::credit: return head.body == 0;
  }
  return false;
}

bool Inbox::on_head(const FrameHead& head, std::byte*& body) try {
  if (!is_sane(head)) return false;
  if (head.kind == FrameKind::eager || head.kind == FrameKind::announce) {
    if (find(head.id) != nullptr || !on_first(head)) return false;
  }
  if (head.kind != FrameKind::eager && head.kind != FrameKind::data) return true;
  Incoming* const message = find(head.id);
  const bool expects_more = message != nullptr && message->state == Incoming::State::arriving &&
                            message->bytes - message->got >= head.body;
  if (!expects_more) return false;
  body = place_of(*message);
  if (head.body > 0) current_ = message;
  return true;
} catch (const std::bad_alloc&) {
  lacks_memory_ = true;
  return false;
}

/// Begins a message: matches it with a receive, or adds it to the matcher.
bool Inbox::on_first(const FrameHead& head) {
  Incoming& message = add(head);
  message.is_eager = head.kind == FrameKind::eager;
  message.state = message.is_eager ? Incoming::State::arriving : Incoming::State::announced;
  Receive receive;
  if (matcher_->take_receive(head.tag(), receive)) {
    if (receive.sender_tag != nullptr) *receive.sender_tag = head.tag();
    if (!receive.fits(head.bytes)) {
      complete(receive, Code::mismatch, 0);
      sink(message);
      return true;
    }
    message.receive = receive;
    if (message.is_eager) return true;
    message.state = Incoming::State::arriving;
    outbox_->send_control(FrameKind::go, message.id);
    return true;
  }
  if (message.is_eager) message.memory = std::make_unique_for_overwrite<std::byte[]>(head.bytes);
  if (matcher_->keep({endpoint_, head.id}, head.tag(), head.bytes, 0) != nullptr) return true;
  lacks_memory_ = true;
  return false;
}

bool Inbox::on_frame(const FrameHead& head) {
  outbox_->on_credit(head.credit);
  switch (head.kind) {
    case FrameKind::announce:
    case FrameKind::credit: break;
    case FrameKind::go: outbox_->on_go(head.id); break;
    case FrameKind::drop: outbox_->on_drop(head.id); break;
    case FrameKind::withdraw: on_withdraw(head.id); break;
    case FrameKind::eager:
    case FrameKind::data: {
      current_ = nullptr;
      Incoming* const message = find(head.id);
      if (message == nullptr) return false;
      message->got += head.body;
      if (message->got == message->bytes) finish(*message);
    }
  }
  return true;
}

void Inbox::finish(Incoming& message) {
  message.state = Incoming::State::whole;
  if (message.receive.operation != nullptr) return deliver(message);
  if (!message.is_sunk) return;  // The message waits for a receive.
  return_credit(message);
  release(message);
}

/// Passes a complete message to its receive.
void Inbox::deliver(Incoming& message) {
  if (message.memory) {
    copy_bytes(message.receive.target.data, message.memory.get(), message.bytes);
  }
  complete(message.receive, Code::ok, message.bytes);
  return_credit(message);
  release(message);
}

/// Discards the rest of a message that has no receive and is not in the matcher.
void Inbox::sink(Incoming& message) {
  if (message.state == Incoming::State::whole || message.state == Incoming::State::announced) {
    if (message.state == Incoming::State::announced)
      outbox_->send_control(FrameKind::drop, message.id);
    return_credit(message);
    return release(message);
  }
  if (current_ == &message) reader_.redirect();
  message.is_sunk = true;
  message.receive = {};
  message.memory.reset();
  outbox_->send_control(FrameKind::drop, message.id);
}

bool Inbox::match(std::uint64_t id, const Receive& receive) {
  Incoming& message = *find(id);
  Operation& operation = *receive.operation;
  if (receive.sender_tag != nullptr) *receive.sender_tag = message.tag;
  if (!receive.fits(message.bytes)) {
    operation.code = Code::mismatch;
    operation.bytes = 0;
    sink(message);
    return true;
  }
  if (message.state == Incoming::State::whole) {
    copy_bytes(receive.target.data, message.memory.get(), message.bytes);
    operation.code = Code::ok;
    operation.bytes = message.bytes;
    return_credit(message);
    release(message);
    return true;
  }
  message.receive = receive;
  if (message.state == Incoming::State::announced) {
    message.state = Incoming::State::arriving;
    outbox_->send_control(FrameKind::go, id);
  }
  return false;
}

void Inbox::drop(std::uint64_t id) { sink(*find(id)); }

bool Inbox::cancel(const Operation& operation) {
  for (Messages& bucket : messages_) {
    const auto at = std::ranges::find_if(
        bucket, [&](const Incoming& message) { return message.receive.operation == &operation; });
    if (at == bucket.end()) continue;
    complete(at->receive, Code::cancelled, 0);
    sink(*at);
    return true;
  }
  return false;
}

void Inbox::on_withdraw(std::uint64_t id) {
  Incoming* const message = find(id);
  // Null: the message was announced and dropped, so it has been released already.
  if (message == nullptr || message->state == Incoming::State::whole) return;
  if (message->receive.operation != nullptr) {
    complete(message->receive, Code::cancelled, 0);
  } else if (!message->is_sunk) {
    matcher_->drop_stream({endpoint_, id});
  }
  return_credit(*message);
  release(*message);
}

void Inbox::end_all(Code code) {
  current_ = nullptr;
  for (Messages& bucket : messages_) {
    for (auto at = bucket.begin(); at != bucket.end();) {
      Incoming& message = *at++;
      if (message.state == Incoming::State::whole) continue;
      if (message.receive.operation != nullptr) {
        complete(message.receive, code, 0);
      } else if (!message.is_sunk) {
        matcher_->drop_stream({endpoint_, message.id});
      }
      release(message);
    }
  }
}

}  // namespace xylem::transport::tcp
