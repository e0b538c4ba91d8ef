// SPDX-License-Identifier: Apache-2.0
#include "calls/operation.h"

namespace xylem::runtime {

void Operation::unreferenced() noexcept {
  if (pool_ != nullptr) return pool_->give_back(*this);
  const std::unique_ptr<Operation> self(this);
}

void Operation::reset() noexcept {
  call = Call{};
  plan = nullptr;
  unplanned = Status();
  mesh = nullptr;
  enqueued = execution::Enqueued{};
  source = 0;
  received = 0;
  fails_alone = false;
  gate_waits = nullptr;
  lists = OperationLists{};
  watched = Watched{};
  if (run.device.compute != nullptr) stream_waits_.renew();
  renew();
  outcome_ = Status();
  timeout_.store(kNoTimeout, std::memory_order_relaxed);
  ended_.store(false, std::memory_order_relaxed);
}

void Operation::begin(std::shared_ptr<Group> for_group) noexcept {
  group = std::move(for_group);
  set_references(2);
}

Operation& OperationPool::take(std::shared_ptr<Group> group) {
  Operation& operation = take_free();
  operation.begin(std::move(group));
  return operation;
}

Operation& OperationPool::at_hand() {
  if (at_hand_ == nullptr) at_hand_ = &take_free();
  return *at_hand_;
}

void OperationPool::keep_at_hand(std::shared_ptr<Group> group) noexcept {
  std::exchange(at_hand_, nullptr)->begin(std::move(group));
}

Operation& OperationPool::take_free() {
  if (Operation* spare = spare_.exchange(nullptr, std::memory_order_acquire)) return *spare;
  const std::lock_guard lock(mutex_);
  if (free_ == nullptr) {
    free_ = all_.emplace_back(std::make_unique<Operation>(*this)).get();
  }
  Operation& operation = *std::exchange(free_, free_->free_next_);
  operation.free_next_ = nullptr;
  return operation;
}

void OperationPool::give_back(Operation& operation) noexcept {
  // The operation belongs to the parent process, in which another thread may have held the mutex at
  // the fork.
  if (process_.is_forked()) return;
  // The group may be the last owner of the job, and so of this pool. So its reference is dropped
  // only after the operation is back in the pool.
  const std::shared_ptr<Group> group = std::move(operation.group);
  operation.reset();
  Operation* none = nullptr;
  if (spare_.compare_exchange_strong(none, &operation, std::memory_order_release,
                                     std::memory_order_relaxed)) {
    return;
  }
  const std::lock_guard lock(mutex_);
  operation.free_next_ = free_;
  free_ = &operation;
}

}  // namespace xylem::runtime
