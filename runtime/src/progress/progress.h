// SPDX-License-Identifier: Apache-2.0
//
// Progress: decides which thread drives the operations of a job, and how the other threads wait.
// Each job has one progress token, whose holder calls the sources of work (work_source.h). A waiter
// acquires the token if it is free. Otherwise it watches the flag that ends its wait, and acquires
// the token when the holder releases it. A waiter first spins if each rank of this host has a core,
// then yields, then sleeps.
//
// A waiter waits patiently while other programs compute on the cores (contention.h): it sleeps as
// soon as a turn finds nothing to do, and wakes sleeping peers only when it has nothing else to do
// (held_wakes.h). So a rank does as much as it can before it sleeps, and is not woken for every
// piece of a message. A thread that waits beside the application (Waiter::helper), such as one that
// completes futures, also waits patiently while the application computes at this rank or at another
// rank of this host, and always where ranks share cores. Otherwise its polling would take a core
// from the application.
//
// No wake-up is lost. A thread that is about to sleep announces this, executes a full fence, and
// then checks whether there is a reason not to sleep. A thread that makes such a reason publishes
// it, executes a full fence, and then checks for an announcement. So at least one of the two
// threads notices the other:
//
//   who sleeps           announcement             what is published          who then looks
//   the token holder     sleeping_                work, acquire()            notify()
//   a waiter             parked_                  the end of an operation,   announce_ended()
//                                                 the released token
//   the progress thread  ProgressThread::dozes_   work                       wake_if_idle()
//   the progress thread  ProgressThread::sleeps_  needed_polling_,           on_needs_polling()
//                                                 the released token
//
// A waiter requests the token only for a moment (request_token()), so it repeats the request while
// it waits. tests/model/progress_protocol.pml proves that no wake-up is lost for two callers and
// the progress thread; its head says what it leaves out.
#pragma once

#include "progress/application_thread.h"
#include "progress/contention.h"
#include "progress/core_binding.h"
#include "progress/held_wakes.h"
#include "progress/token.h"
#include "progress/token_trace.h"
#include "progress/waiting.h"
#include "progress/work_source.h"
#include "xylem/base/clock.h"
#include "xylem/base/mutex.h"
#include "xylem/base/unique_fd.h"
#include "xylem/transport/host_peers.h"

#include <poll.h>

#include <atomic>
#include <cassert>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

namespace xylem::runtime {

/// The kind of thread that waits.
enum class Waiter : std::uint8_t {
  application,  ///< A thread of the application, which does nothing else until the wait ends.
  helper,       ///< A helper thread. The application may compute meanwhile.
};

/// The thread that drives a job when no other thread does (ProgressThread).
class Attendant {
 public:
  /// The token has been released while some source needs polling (WorkSource::needs_polling()).
  /// Called by the thread that has released it, after a full fence.
  virtual void on_needs_polling() noexcept = 0;

 protected:
  ~Attendant() = default;
};

class Progress {
 public:
  /// The sources outlive this object.
  explicit Progress(WorkSources& sources);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() = default;

  /// Sets how threads wait, and the other ranks of this host. Call this before any thread waits.
  /// `peers` must outlive the last turn, and only the token holder uses it.
  void open(WaitPolicy policy, transport::HostPeers& peers) noexcept;
  /// Sets the attendant, which must exist until the last release() has returned. Call this before a
  /// second thread uses this object.
  void set_attendant(Attendant& attendant) noexcept { attendant_ = &attendant; }

  /// Waits until `ended` is true. False if the deadline passes first. The token holder sets
  /// `ended`, and then calls announce_ended(). A Waiter::helper leaves the token to waiting threads
  /// of the application, except if the policy forbids sleep.
  bool wait(const std::atomic<bool>& ended, Deadline deadline, Waiter waiter = Waiter::application);
  /// Makes one turn, if the token is free.
  void poke();

  bool try_acquire() noexcept {
    const bool is_taken =
        !held_.load(std::memory_order_relaxed) && !held_.exchange(true, std::memory_order_acquire);
    if (is_taken) trace_token(TokenEvent::taken);
    return is_taken;
  }
  /// Requests the token, and waits until it is acquired. If the progress thread holds it, that
  /// thread releases it at its next check; a waiter releases it after its turn. For rare work only.
  /// The caller must not hold the token.
  void acquire() { (void)acquire_until(Deadline::at(Clock::time_point::max())); }
  /// Like acquire(), but returns false if the deadline passes first.
  bool acquire_until(Deadline deadline);
  /// A Token for a caller that has none, and whose thread holds the progress token: because it has
  /// just acquired the token, or because the token holder calls it through an interface without a
  /// Token. Builds with assertions check that some thread holds the token.
  Token assert_held() const noexcept {
    assert(held());
    return {};
  }
  /// Releases the token. This is also a full fence, so ProgressThread::wake_if_idle() may follow.
  void release() noexcept;
  /// Like release(), but does not check whether a source needs polling. Call this if nothing has
  /// been started that is still in progress: the result of the last check then still holds.
  void release_unchanged() noexcept;
  /// Runs `work(Token)` as the token holder, and returns what it returns.
  template <typename Work>
  auto with_token(Work work) {
    acquire();
    const std::unique_ptr<Progress, Release> held(this);
    return work(assert_held());
  }
  /// Makes one turn of the job: calls each source of work once.
  unsigned turn(Token token);
  /// Wakes the token holder if it sleeps, since there is new work. Any thread may call this, after
  /// it has published the work.
  void notify() noexcept;
  /// Wakes the threads that wait without the token, since operations have ended. For the token
  /// holder only.
  void announce_ended() noexcept;

  /// Makes one turn, if the token is free. For the progress thread.
  void turn_if_free();
  /// Whether work_off() found work, and whether it was interrupted before it had done all of it.
  enum class Worked : std::uint8_t { nothing, some, interrupted };
  /// Makes turns until a turn finds nothing to do. It is interrupted after 10 ms, when `stop` is
  /// set, and as soon as another thread requests the token. For the progress thread, which must
  /// hold the token.
  Worked work_off(const std::atomic<bool>& stop);
  /// Makes turns while a source needs polling, as when a device has work. Ends when nothing has
  /// happened for as long as a waiter spins. It is interrupted like work_off().
  Worked spin_for_device(const std::atomic<bool>& stop);
  /// Makes the progress thread sleep for at most 10 ms. An event of the transports, an event of
  /// `extra`, and a thread that requests the token wake it. False if it did not sleep, since there
  /// was work, or since a transport cannot wake it. Only the token holder may call this.
  bool doze(pollfd extra);
  /// See WorkSource::needs_polling().
  bool needs_polling(Token token) const noexcept { return sources_.needs_polling(token); }
  /// Whether any source needed polling when the token was last released. Any thread may call this.
  bool needed_polling() const noexcept { return needed_polling_.load(std::memory_order_relaxed); }
  bool held() const noexcept { return held_.load(std::memory_order_relaxed); }
  /// Records that the calling thread has made a call that continues after it returns
  /// (ApplicationThread).
  void note_call() noexcept { program_.note_call(); }
  /// How often user threads have acquired the token.
  std::uint64_t visits() const noexcept { return visits_.load(std::memory_order_relaxed); }

 private:
  struct Release {
    void operator()(Progress* progress) const noexcept { progress->release(); }
  };

  /// Only the token holder writes `visits_`, so no atomic increment is needed.
  void visited() noexcept {
    visits_.store(visits_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void drive(const std::atomic<bool>& ended, Deadline deadline, Waiter waiter);
  void drive_eagerly(const std::atomic<bool>& ended,
                     Deadline deadline,
                     Waiter waiter,
                     CoreBinding& binding);
  void drive_sleeping(const std::atomic<bool>& ended,
                      Deadline deadline,
                      Waiter waiter,
                      CoreBinding& binding);
  bool must_release_token(Waiter waiter) const noexcept;
  bool must_sleep_early(Waiter waiter, CoreBinding& binding);
  bool probe_contention(Clock::time_point now) noexcept;
  void nap() noexcept;
  void request_token() noexcept;
  /// Whether more threads wait than may spin. Counts the token holder, and the threads of the
  /// application that wait without the token.
  bool is_crowded() const noexcept {
    return policy_.is_crowded(application_waiters_.load(std::memory_order_relaxed) + 1);
  }
  bool do_ranks_share_cores() const noexcept { return policy_.spin.count() == 0; }
  bool check_application_threads(CoreBinding& binding);
  /// Makes a turn, and then sleeps for at most `limit`. False if it did not sleep: because the turn
  /// found work, because `ended` is true after the turn, because another thread requests the token,
  /// or because a transport cannot wake this thread. `ended` is checked since a turn may end an
  /// operation although it reports that nothing happened: by a launch, by an event of the control
  /// plane, or by a tick.
  bool sleep(std::chrono::nanoseconds limit,
             const std::atomic<bool>* ended,
             const pollfd* extra = nullptr);
  void park(const std::atomic<bool>& ended, Deadline deadline);

  WorkSources& sources_;
  transport::HostPeers* peers_ = nullptr;
  Attendant* attendant_ = nullptr;
  WaitPolicy policy_;
  SpinLearner learner_;    ///< Learns from the holder's idle periods.
  Contention contention_;  ///< Whether other programs compute, as the token holder has measured.
  ApplicationThread program_;
  HeldWakes wakes_;
  std::atomic<bool> needed_polling_{false};
  alignas(64) std::atomic<bool> held_{false};
  /// How many threads request the token: waiters and callers of acquire(). The progress thread
  /// releases the token for any of them.
  std::atomic<std::uint32_t> token_requests_{0};
  /// How many threads are in acquire(). Waiters, too, release the token for these.
  std::atomic<std::uint32_t> acquiring_{0};
  /// How many threads of the application are in wait() without the token. Threads that wait beside
  /// the application release the token for these.
  std::atomic<std::uint32_t> application_waiters_{0};
  std::atomic<std::uint64_t> visits_{0};
  alignas(64) std::atomic<bool> sleeping_{false};
  UniqueFd wake_;                    ///< An eventfd that ends the holder's sleep.
  std::vector<pollfd> descriptors_;  ///< Polled while the holder sleeps.

  std::atomic<std::uint32_t> parked_{0};
  Mutex park_mutex_;
  Condition park_condition_;
};

}  // namespace xylem::runtime
