// SPDX-License-Identifier: Apache-2.0
#include "xylem/execution/message_pool.h"

#include <cstddef>
#include <utility>

namespace xylem::execution {

Message& MessagePool::acquire(Execution& execution, const Link& link) {
  if (free_ == nullptr) {
    constexpr std::size_t kBlock = 64;
    auto block = std::make_unique<Message[]>(kBlock);
    for (std::size_t i = 0; i < kBlock; ++i) block[i].next = std::exchange(free_, &block[i]);
    blocks_.push_back(std::move(block));
  }
  Message& message = *std::exchange(free_, free_->next);
  message = Message{};
  message.done = &MessagePool::on_done;
  message.pool = this;
  message.owner = &execution;
  message.transport = link.transport;
  message.views = link.views;
  message.endpoint = link.endpoint;
  message.next = execution.messages;
  if (execution.messages != nullptr) execution.messages->previous = &message;
  execution.messages = &message;
  ++execution.outstanding;
  return message;
}

void MessagePool::release(Message& message) noexcept {
  Execution& execution = *message.owner;
  if (message.previous != nullptr) {
    message.previous->next = message.next;
  } else {
    execution.messages = message.next;
  }
  if (message.next != nullptr) message.next->previous = message.previous;
  --execution.outstanding;
  message.next = std::exchange(free_, &message);
}

void MessagePool::on_done(transport::Operation& done) noexcept {
  auto& message = static_cast<Message&>(done);
  message.completed_next = nullptr;
  *message.pool->completed_tail_ = &message;
  message.pool->completed_tail_ = &message.completed_next;
}

Message* MessagePool::next_completed() noexcept {
  if (completed_ == nullptr) return nullptr;
  Message* const oldest = std::exchange(completed_, completed_->completed_next);
  if (completed_ == nullptr) completed_tail_ = &completed_;
  return oldest;
}

}  // namespace xylem::execution
