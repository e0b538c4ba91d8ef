// SPDX-License-Identifier: Apache-2.0
//
// Background: a thread for work of a job that may take long, so that the token holder must not do
// it.
#pragma once

#include "xylem/base/mutex.h"
#include "xylem/base/status.h"

#include <deque>
#include <functional>
#include <thread>

namespace xylem::runtime {

/// Runs tasks one after the other. Any thread may call the functions, but only one thread may call
/// stop().
class Background {
 public:
  using Task = std::function<void()>;

  Background() = default;
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  ~Background() { stop(); }

  /// Starts the thread with the first task. Fails with `exhausted` if the system cannot start
  /// another thread. After stop(), does nothing.
  Status post(Task task);
  /// Waits until the task that is running has ended, and drops the others. Call it without the
  /// token, since the task may acquire the token.
  void stop() noexcept;
  /// Lets no further task begin, and waits for nothing. Does not destroy the tasks.
  void close() noexcept;

 private:
  void run();

  Mutex mutex_;
  Condition changed_;
  std::deque<Task> tasks_ XYLEM_LOCKING(guarded_by(mutex_));
  bool is_stopped_ XYLEM_LOCKING(guarded_by(mutex_)) = false;
  std::thread thread_ XYLEM_LOCKING(guarded_by(mutex_));
};

}  // namespace xylem::runtime
