// SPDX-License-Identifier: Apache-2.0
//
// Progress: which thread moves operations forward, and how the other threads wait. There is one
// progress token, whose holder turns the sources of the job (work_source.h). A waiter acquires the
// token if it is free. Otherwise it watches the flag for which it waits, and acquires the token
// when the holder releases it. Waiting first spins if there is a core for each local rank, then
// yields, then sleeps.
//
// A waiter is patient while other programs compute on the cores (contention.h): it sleeps at once,
// and wakes sleeping peers only when it has nothing else to do. So each of two such ranks does as
// much as it can before it sleeps, instead of being woken for every piece of a message. A thread
// that waits beside the program's own, such as one that completes futures, is also patient while
// the program computes, here or at another rank of this host, and wherever ranks share cores, since
// polling would take a core from a program.
//
// No wake-up is lost. A thread that will sleep announces it, executes a full fence, and then looks
// for a reason not to sleep. A thread that has such a reason publishes it, executes a full fence,
// and then looks for an announcement. So one of the two always sees the other:
//
//   who sleeps           announcement             what is published          who then looks
//   the token holder     sleeping_                work, acquire()            notify()
//   a waiter             parked_                  the end of an operation,   announce_ended()
//                                                 the released token
//   the progress thread  ProgressThread::dozes_   work                       wake_if_idle()
//   the progress thread  ProgressThread::sleeps_  needed_polling_,           on_needs_polling()
//                                                 the released token
//
// A waiter that asks for the token does not wait for an answer, so it asks again.
// tests/model/progress_protocol.pml proves this for two callers and the progress thread; its head
// says what it leaves out.
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

/// Who waits.
enum class Waiter : std::uint8_t {
  application,  ///< A thread of the program, which does nothing else meanwhile.
  helper,       ///< A thread that serves the program, which may compute meanwhile.
};

/// A thread that drives a job when no other thread does.
class Attendant {
 public:
  /// The token has been released while some source needs polling (WorkSource). Called by the thread
  /// that held it, after a full fence.
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

  /// Sets how threads wait, and the other ranks of this host. Call it only before any thread waits.
  /// `peers` outlives the last turn, and only the token holder calls it.
  void open(WaitPolicy policy, transport::HostPeers& peers) noexcept;
  /// Sets the attendant, which outlives the return of the last release(). Call it before a second
  /// thread uses this object.
  void set_attendant(Attendant& attendant) noexcept { attendant_ = &attendant; }

  /// Waits until `ended` is true. False if the deadline passes first. The token holder sets
  /// `ended`, and then calls announce_ended(). A thread beside the program leaves the token to
  /// threads of the program that wait, unless the policy is never to sleep.
  bool wait(const std::atomic<bool>& ended, Deadline deadline, Waiter waiter = Waiter::application);
  /// Makes one turn, if the token is free.
  void poke();

  bool try_acquire() noexcept {
    const bool is_taken =
        !held_.load(std::memory_order_relaxed) && !held_.exchange(true, std::memory_order_acquire);
    if (is_taken) trace_token(TokenEvent::taken);
    return is_taken;
  }
  /// Acquires the token, after asking its holder to release it. The progress thread does so when it
  /// next checks, a waiter after its turn. For rare work only. The caller must not hold the token.
  void acquire() { (void)acquire_until(Deadline::at(Clock::time_point::max())); }
  /// The same; false if the deadline passes first.
  bool acquire_until(Deadline deadline);
  /// A Token for a caller that knows that its thread holds the token: it has just acquired it, or
  /// it is only called by its holder, from code that knows no Token. Builds with assertions check
  /// that some thread holds the token.
  Token assert_held() const noexcept {
    assert(held());
    return {};
  }
  /// Also a full fence, so ProgressThread::wake_if_idle() may follow.
  void release() noexcept;
  /// The same, if nothing has been started that is not over, so that no source needs polling that
  /// did not before.
  void release_unchanged() noexcept;
  /// Runs `work(Token)` as the token holder, and returns what it returns.
  template <typename Work>
  auto with_token(Work work) {
    acquire();
    const std::unique_ptr<Progress, Release> held(this);
    return work(assert_held());
  }
  /// One turn of the job.
  unsigned turn(Token token);
  /// Tells the holder that there is new work, and wakes it if it sleeps. Any thread may call this,
  /// after it has published the work.
  void notify() noexcept;
  /// Wakes the threads that wait without the token, since operations have ended. For the token
  /// holder only.
  void announce_ended() noexcept;

  /// Makes one turn, if the token is free. For the progress thread.
  void turn_if_free();
  /// Whether work_off() found work, and whether it was interrupted before it had done all of it.
  enum class Worked : std::uint8_t { nothing, some, interrupted };
  /// Makes turns until a turn finds nothing to do. It is interrupted after 10 ms, when `stop` is
  /// set, and as soon as another thread wants the token. For the progress thread, which must hold
  /// the token.
  Worked work_off(const std::atomic<bool>& stop);
  /// Makes turns while the job waits for a device, until nothing has happened for as long as a
  /// waiter spins. Interrupted like work_off().
  Worked spin_for_device(const std::atomic<bool>& stop);
  /// Makes the progress thread sleep until an event of the transports, an event of `extra`, or
  /// until another thread wants the token; 10 ms at most. False if it did not sleep, since there
  /// was work or since the transports cannot be slept on. For the token holder only.
  bool doze(pollfd extra);
  /// See WorkSource.
  bool needs_polling(Token token) const noexcept { return sources_.needs_polling(token); }
  /// Whether any source needed polling when the token was last released. Any thread may call this.
  bool needed_polling() const noexcept { return needed_polling_.load(std::memory_order_relaxed); }
  bool held() const noexcept { return held_.load(std::memory_order_relaxed); }
  /// Call this on a thread that has made a call which may go on after it returns.
  void note_call() noexcept { program_.note_call(); }
  /// Counts how often user threads have taken the token.
  std::uint64_t visits() const noexcept { return visits_.load(std::memory_order_relaxed); }

 private:
  struct Release {
    void operator()(Progress* progress) const noexcept { progress->release(); }
  };

  /// Only the holder writes it, so no atomic increment is needed.
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
  /// Whether more threads wait than may spin: the token holder, and those of the program that wait
  /// without the token.
  bool is_crowded() const noexcept {
    return policy_.is_crowded(application_waiters_.load(std::memory_order_relaxed) + 1);
  }
  bool do_ranks_share_cores() const noexcept { return policy_.spin.count() == 0; }
  bool check_application_threads(CoreBinding& binding);
  /// Sleeps for at most `limit`. False if it did not sleep, since there was work, since `ended`
  /// became true in its turn, or since the transports cannot be slept on. A turn may end an
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
  Contention contention_;  ///< What the holder has noticed of other programs.
  ApplicationThread program_;
  HeldWakes wakes_;
  std::atomic<bool> needed_polling_{false};
  alignas(64) std::atomic<bool> held_{false};
  /// How many threads want the token: waiters and callers of acquire(). The progress thread gives
  /// the token up to any of them.
  std::atomic<std::uint32_t> token_requests_{0};
  /// How many threads are in acquire(). For these, waiters give the token up, too.
  std::atomic<std::uint32_t> acquiring_{0};
  /// How many threads of the program are in wait() and have not found the token free at once.
  /// Threads that wait beside the program leave it to them.
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
