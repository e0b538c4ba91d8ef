// SPDX-License-Identifier: Apache-2.0
//
// CoreBinding: binds the calling thread to one core for some time.
#pragma once

#include <sched.h>

namespace xylem::runtime {

/// Binds the thread that uses it. release() or the destructor restores the cores that the thread
/// had before, unless other code has changed them meanwhile. For one thread only, which uses no
/// other binding at the same time. If the system refuses, as on machines with more than 1024 cores,
/// the thread stays as it is.
class CoreBinding {
 public:
  CoreBinding() noexcept = default;
  CoreBinding(const CoreBinding&) = delete;
  CoreBinding& operator=(const CoreBinding&) = delete;
  ~CoreBinding() { release(); }

  /// Binds the thread to this core. Releases it if it may not run there, or if `core` is negative
  /// (unknown).
  void bind(int core) noexcept {
    if (core == core_) return;
    if (core_ != kNone && !is_in_force()) forget();
    if (core_ == kNone && ::sched_getaffinity(0, sizeof before_, &before_) != 0) return;
    if (core < 0 || core >= CPU_SETSIZE || !CPU_ISSET(core, &before_)) return release();
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(core, &only);
    if (::sched_setaffinity(0, sizeof only, &only) != 0) return release();
    core_ = core;
    of_this_thread = this;
  }
  void release() noexcept {
    if (core_ == kNone) return;
    if (is_in_force()) (void)::sched_setaffinity(0, sizeof before_, &before_);
    forget();
  }
  /// Releases the binding of the calling thread, if there is one. Threads and processes inherit the
  /// cores of the thread that starts them, so call this before code of the user runs, which may
  /// start some.
  static void release_this_thread() noexcept {
    if (of_this_thread != nullptr) of_this_thread->release();
  }

 private:
  static constexpr int kNone = -1;

  /// False if other code has changed the cores of the thread.
  bool is_in_force() const noexcept {
    cpu_set_t now;
    return ::sched_getaffinity(0, sizeof now, &now) == 0 && CPU_COUNT(&now) == 1 &&
           CPU_ISSET(core_, &now);
  }

  void forget() noexcept {
    core_ = kNone;
    of_this_thread = nullptr;
  }

  static inline thread_local CoreBinding* of_this_thread = nullptr;

  // Not initialized, since every wait makes an object of this class.
  cpu_set_t before_;  ///< The cores to restore, while it is bound.
  int core_ = kNone;  ///< The core to which it is bound.
};

}  // namespace xylem::runtime
