// SPDX-License-Identifier: Apache-2.0
//
// Keeper: the thread of a job. It serves the control plane, sets the tick of the clock, and drives
// progress if there is work that no user thread drives. Without work it looks for new work less and
// less often, down to once a second.
#pragma once

#include "bootstrap/control_plane.h"
#include "failure/failure_detector.h"
#include "groups/header_pool.h"
#include "groups/registry.h"
#include "groups/stopped_meshes.h"
#include "progress/inbox.h"
#include "progress/progress.h"
#include "xylem/base/status.h"
#include "xylem/base/unique_fd.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace xylem::runtime {

class Keeper {
 public:
  /// Where the keeper looks for work. All of these outlive it.
  struct Sources {
    Inbox& inbox;
    HeaderPool& headers;
    Registry& registry;
    FailureDetector& failures;
    StoppedMeshes& stopped_meshes;
  };

  Keeper(Progress& progress, const Sources& sources);
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;
  ~Keeper() { stop(); }

  /// Starts the thread. If `drives`, it also drives progress; otherwise it only serves the control
  /// plane. The control plane must outlive the thread.
  Status start(ControlPlane& control, bool drives);
  /// Ends the thread, if there is one.
  void stop() noexcept;
  /// Makes the thread look for work at once. Any thread may call this.
  void wake() noexcept;

  /// Wakes the keeper if it dozes. Call this after an operation has been submitted or begun, and
  /// after the change to the inbox or the release of the token that follows. Any thread may call
  /// it.
  void rouse() noexcept;

  /// Tells whether the engine waits for devices or for streams of the user. Then the keeper drives
  /// progress at once, since nobody may wait for the call but a stream. For the token holder,
  /// before it gives up the token.
  void set_device_work(bool has_work) noexcept {
    if (has_device_work_.load(std::memory_order_relaxed) != has_work) {
      has_device_work_.store(has_work, std::memory_order_seq_cst);
    }
    if (has_work) rouse(sleeps_);
  }

  /// The number of operations of all communicators that have begun and not ended.
  std::uint32_t pending() const noexcept { return pending_.load(std::memory_order_seq_cst); }
  // The following function is for the token holder, the only thread that changes the number.
  void add_pending() noexcept { set_pending(pending_.load(std::memory_order_relaxed) + 1); }
  void remove_pending() noexcept { set_pending(pending_.load(std::memory_order_relaxed) - 1); }

 private:
  /// What the keeper remembers from one look to the next.
  struct Attention {
    std::uint64_t visits = 0;  ///< Progress::visits() at the last look.
    /// How many looks in a row found work, and that no user thread had taken the token.
    unsigned unattended = 0;
    /// How many looks in a row found neither work nor a user thread.
    unsigned quiet_looks = 0;
    bool spins_for_device = true;          ///< Something has happened since it last spun in vain.
    std::chrono::microseconds wait{1000};  ///< Time until the next look.

    /// Counts one look. `is_visited`: a user thread has taken the token since the last look.
    /// `is_driven`: one thread has held it since then; the look after that comes late, so it counts
    /// as two. `busy`: there is work.
    void note(bool is_visited, bool is_driven, bool busy) noexcept {
      unattended = is_visited || !busy ? unsigned{is_driven && busy} : unattended + 1;
      quiet_looks = is_visited || busy ? 0 : quiet_looks + 1;
    }
  };

  void set_pending(std::uint32_t count) noexcept {
    pending_.store(count, std::memory_order_release);
  }
  /// Wakes the keeper if it has announced a sleep.
  void rouse(std::atomic<bool>& announced) noexcept {
    if (announced.load(std::memory_order_seq_cst) && announced.exchange(false)) wake();
  }
  /// True if a device has work, and this thread is the one that must drive it now.
  bool attends_device() const noexcept {
    return drives_ && has_device_work_.load(std::memory_order_seq_cst) && !progress_.held();
  }
  void keep(ControlPlane& control);
  void attend(Attention& attention, int control_fd);
  /// True if some thread must drive progress. Sent messages that a transport still holds count,
  /// too: their Works have ended, so the user may make no further call for a long time.
  bool has_work() const noexcept {
    // The order of these checks matters, since an operation that is launched first leaves the inbox
    // and then counts as pending.
    return sources_.inbox.has_submitted() || pending() > 0 || sources_.headers.sending() > 0 ||
           sources_.registry.is_draining() || sources_.failures.has_suspicions() ||
           sources_.stopped_meshes.has_any();
  }

  Progress& progress_;
  const Sources sources_;
  bool drives_ = true;
  std::atomic<std::uint32_t> pending_{0};
  std::atomic<bool> dozes_{false};   ///< True while the keeper sleeps until there is new work.
  std::atomic<bool> sleeps_{false};  ///< True while it sleeps for longer than a device may take.
  std::atomic<bool> has_device_work_{false};
  std::atomic<bool> stop_{false};
  UniqueFd wake_;  ///< eventfd
  std::thread thread_;
};

}  // namespace xylem::runtime
