// SPDX-License-Identifier: Apache-2.0
//
// ProgramThread: whether the program computes while another thread waits beside it.
#pragma once

#include "xylem/base/unique_fd.h"

#include <sys/types.h>

#include <atomic>

namespace xylem::runtime {

/// Whether the program computes: whether the thread that made the last call that did not end at
/// once is running. If a program makes calls on several threads, only one of them is looked at.
class ProgramThread {
 public:
  /// The calling thread serves a program, and never is one: note_call() has no effect on it.
  static void leave_out_this_thread() noexcept;
  /// Call on the thread that makes a call. Any thread may call this.
  void note_call() noexcept;
  /// What the system says of that thread.
  struct Look {
    bool is_running = false;
    /// On which it runs, or ran last. -1 if that is not known, or if the thread has a real-time
    /// priority and so leaves its core to no other thread.
    int core = -1;
  };
  /// Asks the system, which takes some microseconds. Says that nothing runs if nobody has made a
  /// call, if the thread has ended or is the caller, or if the system does not tell. One thread at
  /// a time.
  Look look() noexcept;

 private:
  std::atomic<pid_t> id_{0};  ///< Of the thread; 0 before the first call.
  pid_t asked_ = 0;           ///< The thread of `stat_`.
  UniqueFd stat_;             ///< Its file of /proc, which tells its state.
};

}  // namespace xylem::runtime
