// SPDX-License-Identifier: Apache-2.0
//
// Admission: which collectives of a communicator run. At most kMaxOperations run at a time, since a
// tag cannot distinguish more (tag.h). Further calls are deferred, in the order of the calls.
#pragma once

#include "calls/operation.h"
#include "xylem/execution/tag.h"

#include <cstdint>

namespace xylem::runtime {

/// For the token holder only.
class Admission {
 public:
  /// True if a call may run at once: there is room, and no earlier call is deferred.
  bool is_open() const noexcept {
    return running_ < execution::kMaxOperations && first_ == nullptr;
  }
  /// Call this when a call starts to run.
  void enter() noexcept { ++running_; }
  /// Call this when a call has ended that ran, or that drop_deferred() has dropped.
  void leave() noexcept {
    if (running_ > 0) --running_;
  }
  void defer(Operation& operation) noexcept {
    operation.lists.queue_next = nullptr;
    *end_ = &operation;
    end_ = &operation.lists.queue_next;
  }
  /// Takes the first deferred call out of the list if it may run now; null otherwise.
  Operation* next() noexcept {
    if (running_ >= execution::kMaxOperations || first_ == nullptr) return nullptr;
    Operation& next = *first_;
    first_ = next.lists.queue_next;
    if (first_ == nullptr) end_ = &first_;
    return &next;
  }
  void drop_deferred() noexcept {
    first_ = nullptr;
    end_ = &first_;
  }

 private:
  std::uint32_t running_ = 0;
  Operation* first_ = nullptr;
  Operation** end_ = &first_;
};

}  // namespace xylem::runtime
