// SPDX-License-Identifier: Apache-2.0
#include "calls/operation.h"

#include <fmt/format.h>

#include <optional>

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

Status Operation::check_mesh() const {
  const auto rank = mesh == nullptr ? std::nullopt : mesh->mismatched_rank(enqueued.number);
  if (!rank) return {};
  return failure(Code::mismatch,
                 fmt::format("rank {} of the communicator states another number of elements for "
                             "the data that it exchanges with this rank",
                             *rank));
}

void Operation::begin(std::shared_ptr<OperationOwner> owner_of_this) noexcept {
  owner = std::move(owner_of_this);
  set_references(2);
}

Operation& OperationPool::take(std::shared_ptr<OperationOwner> owner) {
  Operation& operation = take_free();
  operation.begin(std::move(owner));
  return operation;
}

Operation& OperationPool::spare(Token /*token*/) {
  if (spare_ == nullptr) spare_ = &take_free();
  return *spare_;
}

Operation& OperationPool::keep_spare(Token /*token*/,
                                     std::shared_ptr<OperationOwner> owner) noexcept {
  Operation& kept = *std::exchange(spare_, nullptr);
  kept.begin(std::move(owner));
  return kept;
}

Operation& OperationPool::take_free() {
  if (Operation* last = last_free_.exchange(nullptr, std::memory_order_acquire)) return *last;
  const Lock lock(mutex_);
  if (free_ == nullptr) {
    free_ = all_.emplace_back(std::make_unique<Operation>(*this)).get();
  }
  Operation& operation = *std::exchange(free_, free_->free_next_);
  operation.free_next_ = nullptr;
  return operation;
}

void OperationPool::give_back(Operation& operation) noexcept {
  // In a forked child, the operation belongs to the parent process, and the mutex cannot be locked:
  // another thread of the parent may have held it at the fork.
  if (process_.is_forked()) return;
  // The owner may hold the last reference to the job, which owns this pool. So the owner is
  // released at the end of this function, after the operation has been returned to the pool.
  const std::shared_ptr<OperationOwner> owner = std::move(operation.owner);
  operation.reset();
  Operation* none = nullptr;
  if (last_free_.compare_exchange_strong(none, &operation, std::memory_order_release,
                                         std::memory_order_relaxed)) {
    return;
  }
  const Lock lock(mutex_);
  operation.free_next_ = free_;
  free_ = &operation;
}

}  // namespace xylem::runtime
