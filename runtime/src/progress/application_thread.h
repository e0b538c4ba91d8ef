// SPDX-License-Identifier: Apache-2.0
//
// ApplicationThread: whether the program computes while another thread waits beside it.
#pragma once

#include "xylem/base/unique_fd.h"

#include <sys/types.h>

#include <atomic>

namespace xylem::runtime {

/// Finds out whether the program computes, that is, whether its thread is running. That is the
/// thread that made the last call which did not end at once. Other threads of the program are not
/// observed.
class ApplicationThread {
 public:
  /// Excludes the calling thread, which only serves the program: note_call() has no effect on it
  /// any more.
  static void leave_out_this_thread() noexcept;
  /// Records that the calling thread has made a call. Any thread may call this.
  void note_call() noexcept;
  /// The state of that thread, as the system reports it.
  struct State {
    bool is_running = false;
    /// The core on which it runs, or ran last. -1 if that is not known, or if the thread has a
    /// real-time priority and so leaves its core to no other thread.
    int core = -1;
  };
  /// Reads the state of that thread from /proc, which takes some microseconds. `is_running` is
  /// false if no call was made, if the thread has ended or is the caller, or if its state cannot be
  /// read. One thread at a time.
  State state() noexcept;

 private:
  std::atomic<pid_t> id_{0};  ///< Of the thread; 0 before the first call.
  pid_t asked_ = 0;           ///< The thread of `stat_`.
  UniqueFd stat_;             ///< Its file in /proc, which contains its state.
};

}  // namespace xylem::runtime
