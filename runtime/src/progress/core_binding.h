// SPDX-License-Identifier: Apache-2.0
//
// CoreBinding: binds the calling thread to one core for some time.
#pragma once

#include <sched.h>

namespace xylem::runtime {

/// Binds the thread that uses this object. release() or the destructor restores the affinity that
/// the thread had before, except if other code has changed the affinity meanwhile. Only one thread
/// may use the object, and the thread may use only one such object at a time. If the system
/// refuses, as on machines with more than 1024 cores, the affinity stays as it is.
class CoreBinding {
 public:
  CoreBinding() noexcept = default;
  CoreBinding(const CoreBinding&) = delete;
  CoreBinding& operator=(const CoreBinding&) = delete;
  ~CoreBinding() { release(); }

  /// Binds the thread to `core`. If the thread may not run on this core, or if `core` is negative
  /// (unknown), releases the binding instead.
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
  /// Releases the binding of the calling thread, if there is one. Call this before code of the user
  /// runs: threads and processes that this code starts inherit the affinity of the calling thread.
  static void release_this_thread() noexcept {
    if (of_this_thread != nullptr) of_this_thread->release();
  }

 private:
  static constexpr int kNone = -1;

  /// False if other code has changed the affinity of the thread.
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

  // Not initialized, to save time, since every wait makes an object of this class.
  cpu_set_t before_;  ///< While bound: the affinity to restore.
  int core_ = kNone;  ///< The core to which the thread is bound.
};

}  // namespace xylem::runtime
