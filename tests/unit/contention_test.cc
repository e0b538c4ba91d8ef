// SPDX-License-Identifier: Apache-2.0
//
// Contention, with a clock that the test advances. Also Progress on a core on which another thread
// computes.
#include "progress/contention.h"

#include "progress/core_binding.h"
#include "progress/progress.h"
#include "support/host_peers.h"

#include <gtest/gtest.h>

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace {
/// While this is set, a yield returns at once, as on a core that no other program uses.
std::atomic<bool> yields_at_once{false};
}  // namespace

/// Replaces the function of the C library in this test program.
extern "C" int sched_yield() noexcept {
  return yields_at_once ? 0 : static_cast<int>(::syscall(SYS_sched_yield));
}

namespace xylem::runtime {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

/// The duration of a yield: if no other thread needs the core, if a waiting rank needs it, and if
/// another program computes on it.
constexpr microseconds kFree{1}, kRank{300}, kSlice{4000};

/// Simulates a rank that yields, or makes a probe when `contention` requests one.
struct Rank {
  Contention contention;
  Clock::time_point now{seconds(1000)};
  int probes = 0;
  nanoseconds lost{0};  ///< Total duration of the probes.

  void yield(microseconds span) {
    now += span;
    contention.note(span, now);
  }
  /// Sleeps while there is contention, but at most for `time`. It is woken every 100 us. `probe`
  /// returns the duration of a probe.
  template <typename Probe>
  void sleep_for(nanoseconds time, Probe probe) {
    const auto end = now + time;
    while (now < end && contention.is_present()) {
      now += microseconds(100);
      if (!contention.wants_probe(now)) continue;
      const microseconds span = probe();
      ++probes;
      lost += span;
      now += span;
      contention.note_probe(span, now);
    }
  }
};

TEST(Contention, BeginsWithTheFirstYieldThatLosesTheCore) {
  Rank rank;
  for (int i = 0; i < 1000; ++i) rank.yield(i % 2 == 0 ? kFree : kRank);
  EXPECT_FALSE(rank.contention.is_present());
  rank.yield(kSlice);
  EXPECT_TRUE(rank.contention.is_present());
}

TEST(Contention, NeedsSeveralLossesInARowWhereRanksShareCores) {
  Rank rank;
  rank.contention.set_losses_to_begin(3);
  for (int i = 0; i < 10; ++i) {
    rank.yield(kSlice);
    rank.yield(kSlice);
    rank.yield(kFree);
  }
  EXPECT_FALSE(rank.contention.is_present());
  for (int i = 0; i < 3; ++i) rank.yield(kSlice);
  EXPECT_TRUE(rank.contention.is_present());
}

TEST(Contention, EndsSoonAfterTheOtherProgramsHaveEnded) {
  Rank rank;
  rank.yield(kSlice);
  rank.sleep_for(milliseconds(10), [] { return kFree; });
  EXPECT_FALSE(rank.contention.is_present());
}

TEST(Contention, LastsAsLongAsTheOtherProgramsAndItsProbesCostLittle) {
  Rank rank;
  rank.yield(kSlice);
  rank.sleep_for(seconds(60), [] { return kSlice; });
  EXPECT_TRUE(rank.contention.is_present());
  EXPECT_LT(rank.lost, milliseconds(600));
  // After the other programs have ended, the next probe follows after about one second.
  rank.sleep_for(seconds(2), [] { return kFree; });
  EXPECT_FALSE(rank.contention.is_present());
}

TEST(Contention, LastsWhileNeighboursWaitNowAndThen) {
  Rank rank;
  rank.yield(kSlice);
  rank.sleep_for(seconds(10), [&] { return rank.probes % 3 == 0 ? kSlice : kFree; });
  EXPECT_TRUE(rank.contention.is_present());
}

TEST(Contention, ProbesMoreSeldomIfItComesBack) {
  Rank rank;
  // At each probe, the cores are free. When the rank polls again, other programs compute.
  for (int i = 0; i < 12; ++i) {
    rank.yield(kSlice);
    rank.sleep_for(seconds(3), [] { return kFree; });
    ASSERT_FALSE(rank.contention.is_present());
  }
  rank.probes = 0;
  rank.yield(kSlice);
  rank.sleep_for(milliseconds(900), [] { return kFree; });
  EXPECT_EQ(rank.probes, 0);
}

/// The source of work of a rank that waits for a peer.
class Calls : public WorkSource, public test::NoHostPeers {
 public:
  explicit Calls(const WaitPolicy& policy) {
    sources.add(*this);
    progress.open(policy, *this);
  }

  unsigned turn(Token /*token*/) override {
    ++turns;
    // At the deadline, the call ends in any case, so that the test ends.
    if (ends(*this) || patience.passed()) ended = true;
    return 0;
  }
  bool arm(Token /*token*/, std::vector<pollfd>& /*descriptors*/) override { return ++sleeps > 0; }
  /// A waiter that detects contention holds wakes in its turns.
  void hold_wakes(bool held) noexcept override {
    is_patient = held;
    was_patient = was_patient || held;
  }

  const Deadline patience = Deadline::after(seconds(20));
  bool (*ends)(const Calls&) = nullptr;  ///< Returns true if the call ends in this turn.
  std::atomic<bool> ended{false};
  bool is_patient = false, was_patient = false;
  int turns = 0, sleeps = 0;
  WorkSources sources;
  Progress progress{sources};
};

/// True if a thread that waits with this policy sleeps while another thread computes on the same
/// core.
bool sleeps_beside_a_neighbour(const WaitPolicy& policy) {
  const int core = ::sched_getcpu();
  std::atomic<bool> computes{true};
  std::thread neighbour([&] {
    CoreBinding binding;
    binding.bind(core);
    while (computes.load()) {
    }
  });
  Calls calls(policy);
  calls.ends = [](const Calls& now) { return now.is_patient && now.sleeps > 0; };
  std::thread waiter([&] {
    // In some versions of Linux, a thread that yields continues to run while the scheduler still
    // owes it time. A thread with the lowest weight is owed none, so it loses the core at every
    // yield.
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 19);
    CoreBinding binding;
    binding.bind(core);
    calls.progress.wait(calls.ended, calls.patience);
  });
  waiter.join();
  computes = false;
  neighbour.join();
  return calls.was_patient && calls.sleeps > 0;
}

TEST(Contention, MakesAWaiterSleepWhetherItSpinsOrYields) {
  WaitPolicy spins = WaitPolicy::make(WaitMode::automatic, 2, 2, true);
  spins.spin = seconds(100);
  EXPECT_TRUE(sleeps_beside_a_neighbour(spins));
  WaitPolicy yields = WaitPolicy::make(WaitMode::automatic, 1, 2, false);
  yields.yield = seconds(100);
  EXPECT_TRUE(sleeps_beside_a_neighbour(yields));
}

TEST(Contention, EndsThoughEveryCallEndsAfterAShortSleep) {
  WaitPolicy policy = WaitPolicy::make(WaitMode::automatic, 2, 2, true);
  policy.spin = seconds(100);
  Calls calls(policy);
  // Long turns have the same effect as a lost core.
  calls.ends = [](const Calls& now) {
    const Deadline loss = Deadline::after(milliseconds(now.is_patient ? 0 : 1));
    while (!loss.passed()) {
    }
    return now.is_patient;
  };
  calls.progress.wait(calls.ended, calls.patience);
  EXPECT_TRUE(calls.was_patient);
  // Short calls: each call ends in the turn after its waiter has announced a sleep.
  calls.ends = [](const Calls& now) { return !now.is_patient || now.sleeps > 0; };
  bool is_over = false;
  yields_at_once = true;  // Other programs may in fact compute on the cores.
  while (!is_over && !calls.patience.passed()) {
    calls.ended = false;
    calls.sleeps = 0;
    calls.progress.wait(calls.ended, Deadline::after(microseconds(100)));
    is_over = calls.sleeps == 0 && calls.ended;
  }
  yields_at_once = false;
  EXPECT_TRUE(is_over);
}

TEST(Progress, EndsAWaitInATurnThatReportsNoWork) {
  Calls calls(WaitPolicy::make(WaitMode::sleep, 1, 1, false));
  calls.ends = [](const Calls& now) { return now.turns == 1; };
  EXPECT_TRUE(calls.progress.wait(calls.ended, calls.patience));
  EXPECT_EQ(calls.sleeps, 0);
  calls.ended = false;
  calls.turns = 0;
  // The waiter makes the second turn before it sleeps.
  calls.ends = [](const Calls& now) { return now.turns == 2; };
  EXPECT_TRUE(calls.progress.wait(calls.ended, calls.patience));
  EXPECT_EQ(calls.sleeps, 0);
}

TEST(Progress, MakesATurnThoughTheDeadlineHasPassed) {
  Calls calls(WaitPolicy::make(WaitMode::automatic, 2, 2, true));
  calls.ends = [](const Calls& /*now*/) { return true; };
  EXPECT_TRUE(calls.progress.wait(calls.ended, Deadline::after(seconds(-1))));
}

}  // namespace
}  // namespace xylem::runtime
