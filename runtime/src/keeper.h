// SPDX-License-Identifier: Apache-2.0
//
// Keeper: a job's own thread. It serves the control plane, sets the clock's tick, and drives
// progress while there is work that no user's thread drives. With nothing to do it looks less and
// less often, at last once a second.
#pragma once

#include "bootstrap/control_plane.h"
#include "failure_detector.h"
#include "header_pool.h"
#include "inbox.h"
#include "progress.h"
#include "registry.h"
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
  };

  Keeper(Progress& progress, const Sources& sources);
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;
  ~Keeper() { stop(); }

  /// `drives`: whether it drives progress, or only serves the control plane, which outlives it.
  Status start(ControlPlane& control, bool drives);
  /// Ends the thread, if there is one.
  void stop() noexcept;
  /// Makes it look at once. Any thread.
  void wake() noexcept;

  /// Wakes it if it looks only once a second: an operation has been submitted or begun, and since
  /// then the caller has released the token or changed the inbox. Any thread.
  void rouse() noexcept;

  /// Operations of all communicators that have begun and not ended.
  std::uint32_t pending() const noexcept { return pending_.load(std::memory_order_seq_cst); }
  // Token holder, who alone changes it.
  void add_pending() noexcept { set_pending(pending_.load(std::memory_order_relaxed) + 1); }
  void remove_pending() noexcept { set_pending(pending_.load(std::memory_order_relaxed) - 1); }

 private:
  /// What the keeper remembers from look to look.
  struct Attention {
    std::uint64_t visits = 0;           ///< Of users' threads, at the last look.
    unsigned unattended = 0;            ///< Looks in a row that found work and no visitor,
    unsigned quiet_looks = 0;           ///< and those that found neither.
    std::chrono::milliseconds wait{1};  ///< Before the next look.
  };

  void set_pending(std::uint32_t count) noexcept {
    pending_.store(count, std::memory_order_release);
  }
  void keep(ControlPlane& control);
  void attend(Attention& attention, int control_fd);
  /// Whether somebody must drive progress: a user who has been told that his message is sent may
  /// not come back for long.
  bool has_work() const noexcept {
    return pending() > 0 || sources_.inbox.has_submitted() || sources_.headers.sending() > 0 ||
           sources_.registry.is_draining() || sources_.failures.has_suspicions();
  }

  Progress& progress_;
  const Sources sources_;
  bool drives_ = true;
  std::atomic<std::uint32_t> pending_{0};
  std::atomic<bool> dozes_{false};  ///< Looks only once a second.
  std::atomic<bool> stop_{false};
  UniqueFd wake_;  ///< eventfd
  std::thread thread_;
};

}  // namespace xylem::runtime
