// SPDX-License-Identifier: Apache-2.0
//
// ProcessGuard: whether this process may use a job. A forked child may not use the job, since the
// job's threads, locks and sockets belong to the parent. After shutdown no process may use the job.
#pragma once

#include "xylem/base/status.h"

#include <atomic>

namespace xylem::runtime {

/// Distinguishes a process from the children that it forks. Any thread may call any function.
class ForkPage {
 public:
  ForkPage() noexcept;
  ForkPage(const ForkPage&) = delete;
  ForkPage& operator=(const ForkPage&) = delete;
  ~ForkPage();

  /// True in a child that was forked after its parent had constructed or claimed the page.
  bool is_forked() const noexcept { return page_ != nullptr && *page_ == 0; }
  /// From now on, is_forked() is false in this process, and true in children that it forks.
  void claim() noexcept;
  /// The error of all calls in a forked child.
  static Status error();

 private:
  volatile char* page_;  ///< Reads 1 in this process; the kernel clears it in a forked child.
};

/// Guards a job. Any thread may call any function.
class ProcessGuard {
 public:
  /// True in a child that was forked after the job started. Such a child must not acquire any lock
  /// of the job.
  bool is_forked() const noexcept { return page_.is_forked(); }
  /// True after shutdown.
  bool is_closed() const noexcept { return closed_.load(std::memory_order_relaxed); }
  bool allows() const noexcept { return !is_forked() && !is_closed(); }
  /// OK if calls are allowed; otherwise the error for the call.
  Status check() const noexcept;
  /// Forbids every use from now on.
  void close() noexcept { closed_ = true; }
  /// Call this when the application has ended. From then on, Xylem calls none of its callbacks.
  void note_end_of_program() noexcept { has_program_ended_ = true; }
  bool has_program_ended() const noexcept { return has_program_ended_; }

 private:
  ForkPage page_;
  std::atomic<bool> closed_{false};
  std::atomic<bool> has_program_ended_{false};
};

}  // namespace xylem::runtime
