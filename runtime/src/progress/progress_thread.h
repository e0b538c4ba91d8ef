// SPDX-License-Identifier: Apache-2.0
//
// ProgressThread: the one thread of a job. It serves the control plane, requests the ticks of the
// work sources, and drives progress if there is work and no other thread drives it. Without work,
// it checks for new work less and less often, down to once a second.
#pragma once

#include "bootstrap/control_plane.h"
#include "progress/progress.h"
#include "progress/work_source.h"
#include "xylem/base/status.h"
#include "xylem/base/unique_fd.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace xylem::runtime {

class ProgressThread final : private Attendant {
 public:
  /// The sources are those that `progress` drives. Both outlive this object.
  ProgressThread(Progress& progress, WorkSources& sources);
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;
  ~ProgressThread() { stop(); }

  /// Starts the thread, which serves the control plane and passes its events to the listener. If
  /// `drives`, the thread also drives progress. The control plane and the listener must outlive the
  /// thread.
  Status start(ControlPlane& control, ControlListener& listener, bool drives);
  /// Ends the thread, if there is one.
  void stop() noexcept;
  /// Makes the thread check for work at once. Any thread may call this.
  void wake() noexcept;
  /// Like wake(), but only if the thread sleeps because there was no work. Call this after new work
  /// has been published, and after a full fence, such as the release of the token. Any thread may
  /// call this.
  void wake_if_idle() noexcept { wake_if(dozes_); }

 private:
  /// The state that the thread keeps between two looks. A look is one check for work (attend()).
  struct Attention {
    std::uint64_t visits = 0;  ///< Progress::visits() at the last look.
    /// Number of looks in a row that found work although no user thread had acquired the token
    /// since the previous look.
    unsigned unattended = 0;
    /// How many looks in a row found neither work nor a user thread.
    unsigned quiet_looks = 0;
    bool spins_for_device = true;          ///< The last spin_for_device() found work.
    std::chrono::microseconds wait{1000};  ///< Time until the next look.

    /// Counts one look. `is_visited`: a user thread has acquired the token since the last look, or
    /// holds it. `is_driven`: one thread has held the token since the last look. The next look then
    /// comes late (kDrivenLook), so this look already counts as unattended. `busy`: there is work.
    void note(bool is_visited, bool is_driven, bool busy) noexcept {
      unattended = is_visited || !busy ? unsigned{is_driven && busy} : unattended + 1;
      quiet_looks = is_visited || busy ? 0 : quiet_looks + 1;
    }
  };

  void on_needs_polling() noexcept override { wake_if(sleeps_); }
  /// Announces a sleep. After this, the thread must check for a reason not to sleep (progress.h).
  static void announce(std::atomic<bool>& sleep) noexcept {
    sleep.store(true, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  /// Wakes the thread if it has announced a sleep. Call this after a full fence.
  void wake_if(std::atomic<bool>& announced) noexcept {
    if (announced.load(std::memory_order_relaxed) && announced.exchange(false)) wake();
  }
  bool has_work() const noexcept { return sources_.need() != WorkSource::Need::nothing; }
  /// True if a source needs polling, no other thread holds the token, and this thread may drive
  /// the job.
  bool attends_device() const noexcept {
    return drives_ && progress_.needed_polling() && !progress_.held();
  }
  void run(ControlPlane& control, ControlListener& listener);
  void attend(Attention& attention, int control_fd);

  Progress& progress_;
  WorkSources& sources_;
  bool drives_ = true;
  std::atomic<bool> dozes_{false};   ///< True while the thread sleeps until there is new work.
  std::atomic<bool> sleeps_{false};  ///< True while it sleeps for longer than kDeviceLook.
  std::atomic<bool> stop_{false};
  UniqueFd wake_;  ///< eventfd
  std::thread thread_;
};

}  // namespace xylem::runtime
