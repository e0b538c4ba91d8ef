// SPDX-License-Identifier: Apache-2.0
//
// LiveJobs: the jobs of this process that have not shut down. They matter to two kinds of
// processes.
//
// - A forked child: if its parent had a job at the time of the fork, the child may not use Xylem.
//   Otherwise it may, like any other process.
// - A process that ends. If it ends normally, by exit(0) or by returning 0 from main(), it leaves
//   its jobs in good order, as Runtime::shutdown() does. If it ends in another way, LiveJobs does
//   nothing, so that the peers detect the loss of the rank.
//
//   exit(status) ──► handlers of the program, destructors of C++ objects   may make calls
//                ──► on_exit handler: records the status
//                ──► ELF destructors of the program                        may make calls
//                ──► ELF destructor of Xylem: leaves the jobs if the status is 0
#pragma once

#include "process_guard.h"
#include "xylem/base/clock.h"
#include "xylem/base/mutex.h"
#include "xylem/base/status.h"

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

namespace xylem::runtime {

/// What LiveJobs calls on a job when the process ends.
class Leaver {
 public:
  /// Leaves the job in good order, since the process ends normally. Other threads may still use the
  /// job. Every wait for a lock or for the token has a limit: if a signal handler calls exit(), the
  /// interrupted thread may hold the lock or the token, and then never releases it.
  virtual void leave_at_exit(Deadline limit) noexcept = 0;

 protected:
  ~Leaver() = default;
};

/// Locks the mutex. Returns false if the deadline passes first. The deadline is needed since the
/// calling thread may hold the mutex itself, if a signal handler has interrupted it and called
/// exit().
bool lock_until(Mutex& mutex, Deadline deadline) noexcept
    XYLEM_LOCKING(try_acquire_capability(true, mutex));

/// Any thread may call any function.
class LiveJobs {
 public:
  /// Never destroyed, since jobs may outlive every other object of the program.
  static LiveJobs& of_process();

  /// Fails in a child that was forked while its parent had a job.
  Status check() const;
  /// Call this when a job has started. If the process ends before remove() is called, leave()
  /// leaves the job.
  void add(std::weak_ptr<Leaver> job);
  /// Call this when a job has shut down.
  void remove(const Leaver& job) noexcept;
  /// Call this when exit() was called with this status.
  void note_exit(int status) noexcept { ends_well_ = (status & 0xff) == 0; }
  /// True once exit(0) was called.
  bool ends_well() const noexcept { return ends_well_; }
  /// Leaves all jobs in good order.
  void leave() noexcept;

 private:
  ForkPage page_;
  std::atomic<bool> ends_well_{false};
  Mutex mutex_;
  /// True once a handler that calls note_exit() is registered.
  bool is_exit_noted_ XYLEM_LOCKING(guarded_by(mutex_)) = false;
  std::vector<std::weak_ptr<Leaver>> jobs_ XYLEM_LOCKING(guarded_by(mutex_));
  std::atomic<std::size_t> count_{0};  ///< Size of `jobs_`. A forked child must not lock the mutex.
};

}  // namespace xylem::runtime
