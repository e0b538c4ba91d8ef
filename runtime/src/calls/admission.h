// SPDX-License-Identifier: Apache-2.0
//
// Admission: decides which collectives of a communicator run. At most kMaxOperations run at a time,
// since a tag cannot distinguish more (tag.h). Further collectives wait in a list, and start in the
// order in which they were called.
#pragma once

#include "calls/operation.h"
#include "xylem/execution/tag.h"

#include <cstdint>

namespace xylem::runtime {

/// Only the holder of the progress token may use this object.
class Admission {
 public:
  /// True if a collective may start at once: fewer than kMaxOperations run, and none is deferred.
  bool is_open() const noexcept {
    return running_ < execution::kMaxOperations && first_ == nullptr;
  }
  /// Call this when a collective starts.
  void enter() noexcept { ++running_; }
  /// Call this when a collective has ended, whether it ran or drop_deferred() dropped it.
  void leave() noexcept {
    if (running_ > 0) --running_;
  }
  void defer(Operation& operation) noexcept {
    operation.lists.queue_next = nullptr;
    *end_ = &operation;
    end_ = &operation.lists.queue_next;
  }
  /// Removes the first deferred collective from the list, and returns it. Null if no collective is
  /// deferred, or if kMaxOperations run already.
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
