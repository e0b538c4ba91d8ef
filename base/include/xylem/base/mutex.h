// SPDX-License-Identifier: Apache-2.0
//
// Mutexes that the compiler checks. Clang rejects code that uses a member without holding the mutex
// that guards it (-Wthread-safety); other compilers ignore the attributes. The rest of Xylem uses
// these classes instead of the mutexes, locks and condition variables of the standard library. This
// header is not installed.
#pragma once

#include "xylem/base/clock.h"

#include <condition_variable>
#include <mutex>

/// An attribute of Clang's thread-safety analysis:
///   guarded_by(mutex_)           of a member: it is used only while its mutex is held
///   requires_capability(mutex_)  of a function: its caller holds the mutex
///   locks_excluded(mutex_)       of a function: its caller does not hold the mutex
#if defined(__clang__)
#define XYLEM_LOCKING(attribute) __attribute__((attribute))
#else
#define XYLEM_LOCKING(attribute)
#endif

namespace xylem {

class XYLEM_LOCKING(capability("mutex")) Mutex {
 public:
  void lock() XYLEM_LOCKING(acquire_capability()) { mutex_.lock(); }
  bool try_lock() XYLEM_LOCKING(try_acquire_capability(true)) { return mutex_.try_lock(); }
  void unlock() XYLEM_LOCKING(release_capability()) { mutex_.unlock(); }
  /// Makes Clang's analysis accept reads of the guarded members in the caller, without locking. Use
  /// it where no thread can modify these members, for a reason that the analysis cannot check, such
  /// as the progress token.
  void assume_unchanging() const noexcept XYLEM_LOCKING(assert_shared_capability()) {}

 private:
  friend class Condition;
  friend class TryLock;
  std::mutex mutex_;
};

/// Locks a mutex, and unlocks it when destroyed.
class XYLEM_LOCKING(scoped_lockable) Lock {
 public:
  explicit Lock(Mutex& mutex) XYLEM_LOCKING(acquire_capability(mutex)) : mutex_(mutex) {
    mutex.lock();
  }
  /// Adopts a mutex that the caller has already locked.
  Lock(Mutex& mutex, std::adopt_lock_t /*held*/) XYLEM_LOCKING(requires_capability(mutex))
      : mutex_(mutex) {}
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() XYLEM_LOCKING(release_capability()) { mutex_.unlock(); }

 private:
  Mutex& mutex_;
};

/// Locks a mutex if it is free, and unlocks it when destroyed. Movable. Clang's analysis does not
/// follow it, so it is only for a mutex that serializes calls and guards no members.
class TryLock {
 public:
  explicit TryLock(Mutex& mutex) : lock_(mutex.mutex_, std::try_to_lock) {}
  explicit operator bool() const noexcept { return lock_.owns_lock(); }

 private:
  std::unique_lock<std::mutex> lock_;
};

/// A condition variable. A wait may return spuriously, so call it in a loop that tests the
/// condition.
class Condition {
 public:
  void notify_one() noexcept { condition_.notify_one(); }
  void notify_all() noexcept { condition_.notify_all(); }
  /// Unlocks the mutex while blocked, and locks it again before returning.
  void wait(Mutex& mutex) XYLEM_LOCKING(requires_capability(mutex)) {
    std::unique_lock held(mutex.mutex_, std::adopt_lock);
    condition_.wait(held);
    held.release();  // The mutex stays locked.
  }
  /// Like wait(), but blocks until `deadline` at most. False if it returns because the deadline
  /// passed.
  bool wait_until(Mutex& mutex, Deadline deadline) XYLEM_LOCKING(requires_capability(mutex)) {
    std::unique_lock held(mutex.mutex_, std::adopt_lock);
    const auto ended = condition_.wait_until(held, deadline.point());
    held.release();
    return ended == std::cv_status::no_timeout;
  }

 private:
  std::condition_variable condition_;
};

}  // namespace xylem
