// SPDX-License-Identifier: Apache-2.0
//
// Progress: who moves things forward, and how the others wait. One token; its holder turns the
// engine and the transports. A waiter takes the token if it is free, else it watches the flag that
// it waits for and takes over when the holder leaves. Waiting spins while there is a core for each
// local rank, then yields, then sleeps.
#pragma once

#include "config.h"
#include "token_trace.h"
#include "xylem/base/clock.h"
#include "xylem/base/unique_fd.h"

#include <poll.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace xylem::runtime {

/// How long an idle waiter does what.
struct WaitPolicy {
  std::chrono::nanoseconds spin{0};
  std::chrono::nanoseconds yield{0};
  bool sleep = true;
  bool learns = false;  ///< It spins only while that is found to be better (SpinLearner).

  /// `cores`: those that this host's ranks have together; `local_ranks`: how many these are.
  static WaitPolicy make(WaitMode mode, std::uint32_t cores, std::uint32_t local_ranks) noexcept;
};

/// Learns what ends idle periods sooner: spinning, which answers at once, or yielding, which lets
/// run a peer that has no core of its own. Only the outcome tells, since ranks may share cores with
/// others that they do not know of. The way that is better is taken, and the other one is tried now
/// and then, so seldom that it costs about one part in 64.
class SpinLearner {
 public:
  struct Next {
    bool spins = true;      ///< The idle period begins by spinning, otherwise by yielding.
    bool is_timed = false;  ///< note() is to be told how long it lasts.
  };
  /// At the start of an idle period.
  Next next() noexcept;
  /// How long an idle period was, from its start to its end.
  void note(bool has_spun, std::chrono::nanoseconds idle) noexcept;
  /// Yields take so long that others compute on this core: the next idle periods spin. The lengths
  /// of idle periods do not show it, since they become as long for a peer that spins.
  void note_lost_core() noexcept;

 private:
  using Nanoseconds = std::int64_t;

  Nanoseconds spinning_ = 0, yielding_ = 0;  ///< Moving averages of idle periods.
  std::int64_t until_trial_ = 64;            ///< Idle periods until the other way is tried.
  bool is_trial_ = false;                    ///< It is tried in this idle period.
};

class Progress {
 public:
  /// What the token's holder drives.
  class Client {
   public:
    virtual ~Client() = default;
    /// One round; how much happened.
    virtual unsigned turn() = 0;
    /// Appends what to poll for while asleep; false if there is something to do already, or
    /// sleeping is not possible.
    virtual bool arm(std::vector<pollfd>& descriptors) = 0;
    /// The holder is about to give the token up.
    virtual void on_release() = 0;
  };

  explicit Progress(Client& client);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() = default;

  /// Before anybody waits.
  void set_policy(WaitPolicy policy) noexcept { policy_ = policy; }

  /// Waits until `ended` is true; false if the deadline passed first. The token's holder sets it,
  /// and then calls announce_ended().
  bool wait(const std::atomic<bool>& ended, Deadline deadline);
  /// One turn if nobody else drives.
  void poke();

  bool try_acquire() noexcept {
    const bool is_taken =
        !held_.load(std::memory_order_relaxed) && !held_.exchange(true, std::memory_order_acquire);
    if (is_taken) trace_token(TokenEvent::taken);
    return is_taken;
  }
  /// Takes the token, asking its holder to give it up: the progress thread at its next look, a
  /// waiter after its turn. For rare work. Never while holding it.
  void acquire();
  void release() noexcept;
  /// Runs `work` as the token holder, and returns what it returns.
  template <typename Work>
  auto with_token(Work work) {
    acquire();
    const std::unique_ptr<Progress, Release> held(this);
    return work();
  }
  /// There is something new for the holder: wakes it if it sleeps. Any thread, after publishing the
  /// work.
  void notify() noexcept;
  /// Operations have ended: wakes those that watch without the token. Holder only.
  void announce_ended() noexcept;

  /// The progress thread's turn, if nobody else drives.
  void turn_if_free();
  /// What came of work_off().
  enum class Worked : std::uint8_t { nothing, some, interrupted };
  /// The progress thread's share: turns until one finds nothing to do; interrupted after 10 ms, at
  /// `stop`, and as soon as somebody wants the token. Holder only.
  Worked work_off(const std::atomic<bool>& stop);
  /// The progress thread's sleep: until an event of the transports, of `extra`, or somebody wants
  /// the token; 10 ms at most. False if the transports cannot sleep. Holder only.
  bool doze(pollfd extra);
  bool held() const noexcept { return held_.load(std::memory_order_relaxed); }
  /// Grows each time a user's thread takes the token.
  std::uint64_t visits() const noexcept { return visits_.load(std::memory_order_relaxed); }

 private:
  struct Release {
    void operator()(Progress* progress) const noexcept { progress->release(); }
  };

  /// Holder only, so the only writer.
  void visited() noexcept {
    visits_.store(visits_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void drive(const std::atomic<bool>& ended, Deadline deadline);
  /// False if there was something to do, or the transports cannot sleep.
  bool sleep(std::chrono::nanoseconds limit, const pollfd* extra = nullptr);
  void park(const std::atomic<bool>& ended, Deadline deadline);

  Client& client_;
  WaitPolicy policy_;
  SpinLearner learner_;  ///< Of the holder's idle periods.
  alignas(64) std::atomic<bool> held_{false};
  std::atomic<std::uint32_t> wanted_{
      0};  ///< By waiters and by acquire(); the progress thread yields.
  std::atomic<std::uint32_t> claims_{0};  ///< By acquire() alone; waiters yield, too.
  std::atomic<std::uint64_t> visits_{0};
  alignas(64) std::atomic<bool> sleeping_{false};
  UniqueFd wake_;                    ///< eventfd that ends the holder's sleep.
  std::vector<pollfd> descriptors_;  ///< Of the holder's sleep.

  std::atomic<std::uint32_t> parked_{0};
  std::mutex park_mutex_;
  std::condition_variable park_condition_;
};

}  // namespace xylem::runtime
