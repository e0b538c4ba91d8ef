// SPDX-License-Identifier: Apache-2.0
//
// ApplicationThread: detects whether the application computes while a helper thread waits beside
// it.
#pragma once

#include "xylem/base/unique_fd.h"

#include <sys/types.h>

#include <atomic>

namespace xylem::runtime {

/// Finds out whether the application computes, that is, whether the observed thread is running. The
/// observed thread is the one that made the last call that did not complete at once. Other threads
/// of the application are not observed.
class ApplicationThread {
 public:
  /// Excludes the calling thread, which only serves the application: its later calls of note_call()
  /// have no effect.
  static void leave_out_this_thread() noexcept;
  /// Makes the calling thread the observed one, since it has made a call. Any thread may call this.
  void note_call() noexcept;
  /// The state of the observed thread, as the system reports it.
  struct State {
    bool is_running = false;
    /// The core on which it runs, or ran last. -1 if the core is not known, or if the thread has a
    /// real-time priority, and so leaves its core to no other thread.
    int core = -1;
  };
  /// Reads the state of the observed thread from /proc, which takes some microseconds. `is_running`
  /// is false if no call was made, if the thread has ended or is the caller, or if its state cannot
  /// be read. Only one thread at a time may call this.
  State state() noexcept;

 private:
  std::atomic<pid_t> id_{0};  ///< Of the observed thread; 0 before the first call.
  pid_t asked_ = 0;           ///< The id of the thread to which `stat_` belongs.
  UniqueFd stat_;             ///< The file in /proc that contains the state of thread `asked_`.
};

}  // namespace xylem::runtime
