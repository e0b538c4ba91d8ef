// SPDX-License-Identifier: Apache-2.0
//
// How the owner of a segment sleeps, and how its peers wake it. The owner stores `asleep` and then
// checks the rings (Sleeper::prepare); a peer stores into a ring and then checks for `asleep`
// (Owner::wake). With a full fence between store and check on both sides, at least one side reads
// what the other has stored (Dekker's algorithm), so no wake-up is lost.
#pragma once

#include "shm/delays.h"
#include "shm/segment.h"
#include "xylem/base/status.h"
#include "xylem/base/unique_fd.h"

#include <atomic>
#include <utility>

namespace xylem::transport::shm {

/// A wake-up of a peer that HostPeers::hold_wakes() may postpone.
struct Wake {
  const bool* is_held = nullptr;  ///< True while wake-ups are postponed. All peers share this flag.
  bool is_due = false;            ///< The wake-up of a sleeping peer has been postponed.
};

/// The owner of a segment, as a peer sees it.
class Owner {
 public:
  /// Stands for an owner that is not known yet.
  Owner() noexcept = default;
  /// `wake` is the owner's eventfd. Segment, descriptor and `later` must outlive this object.
  Owner(const Segment& segment, int wake, Wake* later = nullptr) noexcept
      : state_(&segment.header().state), later_(later), wake_(wake) {}

  bool is_known() const noexcept { return state_ != nullptr; }
  bool has_ended() const noexcept {
    return state_ != nullptr && state_->load(std::memory_order_acquire) == OwnerState::ended;
  }
  /// Wakes the owner if it is asleep. Call this after storing something that the owner must
  /// process. While wake-ups are postponed, only records that the owner must be woken.
  void wake() const noexcept {
    if (state_ == nullptr) return;
    delay();
    std::atomic_thread_fence(std::memory_order_seq_cst);
    delay();
    if (state_->load(std::memory_order_relaxed) != OwnerState::asleep) return;
    if (later_ != nullptr && *later_->is_held) {
      later_->is_due = true;
    } else {
      signal();
    }
  }
  /// Makes the owner's eventfd readable, whether the owner sleeps or not.
  void signal() const noexcept;

 private:
  const std::atomic<OwnerState>* state_ = nullptr;
  Wake* later_ = nullptr;
  int wake_ = -1;
};

/// How a transport sleeps: the state in the transport's own segment, and the descriptors that wake
/// the transport.
class Sleeper {
 public:
  /// `own` is this transport's segment. The sleep also ends when `socket` becomes readable.
  static Result<Sleeper> open(const Segment& own, int socket);

  /// The descriptor to sleep on.
  int fd() const noexcept { return events_.get(); }
  /// The eventfd with which peers wake this transport.
  int wake_fd() const noexcept { return wake_.get(); }

  /// Declares this transport asleep. Then check all rings, and call finish().
  void prepare() noexcept;
  /// Call this after the check of the rings. If the check found nothing (`is_idle`), the transport
  /// stays asleep; otherwise it is declared awake. Returns `is_idle`.
  bool finish(bool is_idle) noexcept;
  /// Declares this transport awake. True if it was asleep before.
  bool wake_up() noexcept {
    const bool was_asleep = std::exchange(is_asleep_, false);
    delay();
    if (was_asleep) state_->store(OwnerState::awake, std::memory_order_relaxed);
    return was_asleep;
  }

 private:
  Sleeper(const Segment& own, UniqueFd wake, UniqueFd events) noexcept
      : state_(&own.header().state), wake_(std::move(wake)), events_(std::move(events)) {}

  std::atomic<OwnerState>* state_;
  UniqueFd wake_;
  UniqueFd events_;  ///< epoll set of `wake_` and the socket.
  bool is_asleep_ = false;
};

}  // namespace xylem::transport::shm
