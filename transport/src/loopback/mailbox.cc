// SPDX-License-Identifier: Apache-2.0
//
// Matches messages with receives under the mailbox's mutex. Payloads are copied outside of it.
#include "loopback/mailbox.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace xylem::transport::loopback {
Mailbox::Mailbox(std::uint64_t id) : id_(id), wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

void Mailbox::take_node(Messages& into) {
  if (spare_.empty()) {
    into.emplace_back();
  } else {
    into.splice(into.end(), spare_, spare_.begin());
  }
}

// No wake-up is lost: `armed_` is cleared under the lock under which the message or completion is
// added, and arm() drains the eventfd before it sets `armed_` again. If write() executes only after
// this drain, the owner wakes once without finding anything, which is harmless.
void Mailbox::wake() noexcept {
  const std::uint64_t one = 1;
  // write() fails only if the counter is full; the descriptor is then readable anyway.
  [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
}

bool Mailbox::push(Messages& one) {
  bool was_armed = false;
  {
    const Lock lock(mutex_);
    if (retired_) return false;
    incoming_.splice(incoming_.end(), one);
    was_armed = std::exchange(armed_, false);
  }
  if (was_armed) wake();
  return true;
}

bool Mailbox::copy(const Envelope& envelope, const void* data) {
  Messages one;
  {
    const Lock lock(mutex_);
    if (retired_) return false;
    take_node(one);
  }
  Message& message = one.front();
  message.envelope = envelope;
  const auto* bytes = static_cast<const std::byte*>(data);
  message.payload.assign(bytes, bytes + envelope.bytes);
  message.source = message.payload.data();
  return push(one);
}

bool Mailbox::offer(const Envelope& envelope,
                    const void* source,
                    Operation& operation,
                    std::shared_ptr<Mailbox> reply) {
  bool was_armed = false;
  {
    const Lock lock(mutex_);
    if (retired_) return false;
    take_node(incoming_);
    Message& message = incoming_.back();
    message.envelope = envelope;
    message.source = source;
    message.operation = &operation;
    message.reply = std::move(reply);
    was_armed = std::exchange(armed_, false);
  }
  if (was_armed) wake();
  return true;
}

void Mailbox::withdraw(std::uint64_t sender,
                       EndpointId endpoint,
                       std::vector<Operation*>& withdrawn) {
  const Lock lock(mutex_);
  for (Messages* queue : {&incoming_, &unexpected_}) {
    for (auto it = queue->begin(); it != queue->end();) {
      const auto message = it++;
      if (message->operation == nullptr || message->envelope.sender != sender ||
          message->envelope.endpoint != endpoint) {
        continue;
      }
      withdrawn.push_back(std::exchange(message->operation, nullptr));
      message->reply.reset();
      spare_.splice(spare_.end(), *queue, message);
    }
  }
}

bool Mailbox::withdraw(const Operation& operation) {
  const Lock lock(mutex_);
  for (Messages* queue : {&incoming_, &unexpected_}) {
    const auto message = std::ranges::find(*queue, &operation, &Message::operation);
    if (message == queue->end()) continue;
    message->operation = nullptr;
    message->reply.reset();
    spare_.splice(spare_.end(), *queue, message);
    return true;
  }
  return false;
}

void Mailbox::complete(Completion completion) {
  bool was_armed = false;
  {
    const Lock lock(mutex_);
    completions_.push_back(completion);
    was_armed = std::exchange(armed_, false);
  }
  if (was_armed) wake();
}

bool Mailbox::post(const Receive& receive, std::list<Message>& matched) {
  const Lock lock(mutex_);
  const auto message = std::ranges::find_if(unexpected_, [&](const Message& m) {
    return tag_matches(m.envelope.tag, receive.tag, receive.mask);
  });
  if (message != unexpected_.end()) {
    matched.splice(matched.end(), unexpected_, message);
    return true;
  }
  if (spare_receives_.empty()) {
    posted_.push_back(receive);
  } else {
    spare_receives_.front() = receive;
    posted_.splice(posted_.end(), spare_receives_, spare_receives_.begin());
  }
  return false;
}

bool Mailbox::cancel(const Operation& operation) {
  const Lock lock(mutex_);
  const auto receive =
      std::ranges::find_if(posted_, [&](const Receive& r) { return r.operation == &operation; });
  if (receive == posted_.end()) return false;
  spare_receives_.splice(spare_receives_.begin(), posted_, receive);
  return true;
}

std::size_t Mailbox::discard(Tag tag, Tag mask, std::list<Message>& dropped) {
  const Lock lock(mutex_);
  std::size_t count = 0;
  for (auto it = unexpected_.begin(); it != unexpected_.end();) {
    const auto message = it++;
    if (!tag_matches(message->envelope.tag, tag, mask)) continue;
    dropped.splice(dropped.end(), unexpected_, message);
    ++count;
  }
  return count;
}

// Draws the next message at random. Of several messages with the same sender and tag, the oldest is
// always drawn first.
Mailbox::Messages::iterator Mailbox::draw(Dice& dice) {
  if (dice.ordered()) return incoming_.begin();
  const auto drawn =
      std::next(incoming_.begin(), static_cast<std::ptrdiff_t>(dice.below(incoming_.size())));
  return std::find_if(incoming_.begin(), drawn, [&](const Message& m) {
    return m.envelope.sender == drawn->envelope.sender && m.envelope.tag == drawn->envelope.tag;
  });
}

unsigned Mailbox::deliver(Dice& dice, Matches& matches, std::vector<Completion>& completions) {
  const Lock lock(mutex_);
  const auto ended = static_cast<unsigned>(completions_.size());
  completions.insert(completions.end(), completions_.begin(), completions_.end());
  completions_.clear();

  auto count = static_cast<unsigned>(incoming_.size());
  if (count > 1 && !dice.ordered()) count = 1 + static_cast<unsigned>(dice.below(count));
  for (unsigned i = 0; i < count; ++i) {
    const auto message = draw(dice);
    const auto receive = std::ranges::find_if(posted_, [&](const Receive& r) {
      return tag_matches(message->envelope.tag, r.tag, r.mask);
    });
    if (receive == posted_.end()) {
      unexpected_.splice(unexpected_.end(), incoming_, message);
      continue;
    }
    matches.receives.push_back(*receive);
    matches.messages.splice(matches.messages.end(), incoming_, message);
    spare_receives_.splice(spare_receives_.begin(), posted_, receive);
  }
  return ended + count;
}

void Mailbox::recycle(std::list<Message>& spent) {
  if (spent.empty()) return;
  const Lock lock(mutex_);
  spare_.splice(spare_.end(), spent);
}

bool Mailbox::arm() {
  std::uint64_t count = 0;
  const Lock lock(mutex_);
  if (!incoming_.empty() || !completions_.empty()) return false;
  // NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection): the eventfd does not block
  [[maybe_unused]] const auto drained = ::read(wake_.get(), &count, sizeof count);
  armed_ = true;
  return true;
}

void Mailbox::retire(std::list<Message>& orphans) {
  const Lock lock(mutex_);
  retired_ = true;
  armed_ = false;
  orphans.splice(orphans.end(), incoming_);
  orphans.splice(orphans.end(), unexpected_);
  posted_.clear();
}

}  // namespace xylem::transport::loopback
