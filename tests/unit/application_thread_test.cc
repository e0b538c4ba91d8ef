// SPDX-License-Identifier: Apache-2.0
//
// Tests ApplicationThread, which determines whether the thread that makes the calls is running, and
// on which core. Also CoreBinding, and Progress, which uses both for a thread that waits beside the
// program.
#include "progress/core_binding.h"
#include "progress/progress.h"
#include "support/host_peers.h"
#include "xylem/base/clock.h"

#include <gtest/gtest.h>

#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <latch>
#include <set>
#include <thread>
#include <vector>

namespace xylem::runtime {
namespace {

/// Polls the state until `holds` returns true. Returns false after 20 s.
template <typename Holds>
bool becomes(ApplicationThread& program, Holds holds) {
  const Deadline patience = Deadline::after(std::chrono::seconds(20));
  while (!holds(program.state())) {
    if (patience.passed()) return false;
    std::this_thread::yield();
  }
  return true;
}
bool runs(const ApplicationThread::State& state) { return state.is_running; }
bool rests(const ApplicationThread::State& state) { return !state.is_running; }
/// A thread that was joined exists in the system for a short time after that.
bool is_gone(const ApplicationThread::State& state) {
  return !state.is_running && state.core == -1;
}

TEST(ApplicationThread, IsNotRunningBeforeAnyCall) {
  EXPECT_FALSE(ApplicationThread().state().is_running);
}

TEST(ApplicationThread, RunsWhileItComputesAndNotWhileItWaitsOrHasEnded) {
  ApplicationThread program;
  std::latch has_called(1), may_end(1);
  std::atomic<bool> computes{true};
  std::thread thread([&] {
    // The name of a thread may contain any characters, including those that precede the state in
    // /proc.
    ::prctl(PR_SET_NAME, "a) R (b");
    program.note_call();
    has_called.count_down();
    while (computes.load()) {
    }
    may_end.wait();
  });
  has_called.wait();
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(program.state().is_running);
  computes = false;
  EXPECT_TRUE(becomes(program, rests));
  may_end.count_down();
  thread.join();
  EXPECT_TRUE(becomes(program, is_gone));
}

std::set<int> own_cores() {
  cpu_set_t cores;
  EXPECT_EQ(::sched_getaffinity(0, sizeof cores, &cores), 0);
  std::set<int> numbers;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &cores)) numbers.insert(core);
  }
  return numbers;
}

TEST(ApplicationThread, TellsItsCore) {
  for (const int core : own_cores()) {
    ApplicationThread program;
    EXPECT_EQ(program.state().core, -1);
    std::latch has_called(1), may_end(1);
    std::thread thread([&] {
      CoreBinding binding;
      binding.bind(core);
      ::prctl(PR_SET_NAME, "0 1) S 2 (3 4");
      program.note_call();
      has_called.count_down();
      may_end.wait();
    });
    has_called.wait();
    EXPECT_EQ(program.state().core, core);
    may_end.count_down();
    thread.join();
    EXPECT_TRUE(becomes(program, is_gone));
  }
}

TEST(ApplicationThread, HasNoCoreForOthersIfItIsRealTime) {
  ApplicationThread program;
  std::latch has_called(1), may_end(1);
  bool is_real_time = false;
  std::thread thread([&] {
    const sched_param lowest{.sched_priority = 1};
    is_real_time = ::sched_setscheduler(0, SCHED_FIFO, &lowest) == 0;
    program.note_call();
    has_called.count_down();
    may_end.wait();
  });
  has_called.wait();
  const int core = program.state().core;
  may_end.count_down();
  thread.join();
  if (!is_real_time) GTEST_SKIP() << "the system does not let a thread have a real-time priority";
  EXPECT_EQ(core, -1);
}

TEST(CoreBinding, IsForRanksWithOneCoreEach) {
  const auto stays = [](WaitMode mode, int cores, int local_ranks, bool has_core_for_each) {
    return WaitPolicy::make(mode, cores, local_ranks, has_core_for_each).follows_application;
  };
  EXPECT_TRUE(stays(WaitMode::automatic, 2, 2, true));
  EXPECT_TRUE(stays(WaitMode::automatic, 8, 8, true));
  EXPECT_FALSE(stays(WaitMode::automatic, 1, 1, true));
  EXPECT_FALSE(stays(WaitMode::automatic, 4, 2, false));
  EXPECT_FALSE(stays(WaitMode::sleep, 2, 2, true));
  // A cgroup limits the time to one core of two, or to two cores of 64.
  EXPECT_FALSE(stays(WaitMode::automatic, 1, 2, true));
  EXPECT_FALSE(stays(WaitMode::automatic, 2, 2, false));
}

TEST(CoreBinding, LastsUntilItIsReleased) {
  const std::set<int> before = own_cores();
  const int first = *before.begin(), last = *before.rbegin();
  {
    CoreBinding binding;
    binding.bind(-1);
    EXPECT_EQ(own_cores(), before);
    for (const int core : {first, last, last, first}) {
      binding.bind(core);
      EXPECT_EQ(own_cores(), std::set<int>{core});
    }
    // bind() only accepts a core that the thread was allowed before.
    for (int core = -1; core <= CPU_SETSIZE; ++core) {
      if (before.contains(core)) continue;
      binding.bind(first);
      binding.bind(core);
      EXPECT_EQ(own_cores(), before) << core;
    }
    binding.bind(first);
    binding.release();
    EXPECT_EQ(own_cores(), before);
    binding.bind(last);
    CoreBinding::release_this_thread();
    EXPECT_EQ(own_cores(), before);
    binding.bind(last);
  }
  EXPECT_EQ(own_cores(), before);
  CoreBinding::release_this_thread();  // There is no binding.
}

TEST(CoreBinding, KeepsCoresThatSomebodyElseHasGivenMeanwhile) {
  const std::set<int> before = own_cores();
  if (before.size() < 2) GTEST_SKIP() << "there is one core";
  const int first = *before.begin(), last = *before.rbegin();
  const auto give = [](int core) {
    cpu_set_t given;
    CPU_ZERO(&given);
    CPU_SET(core, &given);
    ASSERT_EQ(::sched_setaffinity(0, sizeof given, &given), 0);
  };
  std::thread([&] {
    CoreBinding binding;
    binding.bind(first);
    give(last);
    binding.release();
    EXPECT_EQ(own_cores(), std::set<int>{last});
  }).join();
  std::thread([&] {
    CoreBinding binding;
    binding.bind(last);
    give(first);
    binding.bind(first);
    binding.release();
    EXPECT_EQ(own_cores(), std::set<int>{first});
  }).join();
  std::thread([&] {
    {
      CoreBinding binding;
      binding.bind(last);
      give(first);
      binding.bind(last + 1);  // The thread cannot run on this core.
    }
    CoreBinding::release_this_thread();  // There is no binding.
    EXPECT_EQ(own_cores(), std::set<int>{first});
  }).join();
}

/// A thread waits for a call beside a program that computes. The call ends when the thread was
/// bound to all `expected` cores in sequence. If `expected` is empty, it ends after the thread has
/// checked the program several times. If the thread cannot sleep, it must also have been unbound
/// after that. The program's thread is bound to the core that is expected next.
class BesideAProgram : public testing::Test, public WorkSource, public test::NoHostPeers {
 protected:
  BesideAProgram() {
    WaitPolicy policy = WaitPolicy::make(WaitMode::automatic, 2, 2, true);
    policy.spin = std::chrono::microseconds(1);
    sources.add(*this);
    progress.open(policy, *this);
  }
  void wait() {
    std::latch has_called(1);
    std::atomic<bool> computes{true};
    std::thread program([&] {
      CoreBinding binding;
      progress.note_call();
      has_called.count_down();
      while (computes.load()) {
        const std::size_t next = came_to.load();
        if (next < expected.size()) binding.bind(expected[next]);
      }
    });
    has_called.wait();
    EXPECT_TRUE(progress.wait(ended, patience, Waiter::helper));
    computes = false;
    program.join();
    EXPECT_EQ(came_to, expected.size());
  }

  unsigned turn(Token /*token*/) override {
    const auto cores = own_cores();
    was_bound = was_bound || cores.size() == 1;
    if (expected.empty()) {
      ended = looks > 5;
    } else if (came_to < expected.size() && cores == std::set<int>{expected[came_to]}) {
      ended = ++came_to == expected.size() && can_sleep;
    } else if (!can_sleep && came_to == expected.size() && cores.size() > 1) {
      ended = is_unbound_again = true;
    }
    if (patience.passed()) ended = true;  // Progress checks no deadline while there is work.
    return is_busy ? 1 : 0;
  }
  bool arm(Token /*token*/, std::vector<pollfd>& /*descriptors*/) override { return can_sleep; }
  bool needs_polling(Token /*token*/) const noexcept override { return has_device_work; }
  void show_computing(bool /*computes*/) noexcept override { ++looks; }
  bool do_peers_compute() const noexcept override { return peers_compute; }

  const Deadline patience = Deadline::after(std::chrono::seconds(20));
  WorkSources sources;
  Progress progress{sources};
  std::atomic<bool> ended{false};
  std::vector<int> expected;
  std::atomic<std::size_t> came_to{0};
  bool peers_compute = true, has_device_work = false, can_sleep = true, is_busy = false;
  bool was_bound = false, is_unbound_again = false;
  int looks = 0;
};

/// The first and the last core of this process, alternating; empty if there is only one core.
std::vector<int> two_cores_in_turn() {
  const std::set<int> cores = own_cores();
  if (cores.size() < 2) return {};
  return {*cores.begin(), *cores.rbegin(), *cores.begin()};
}

TEST_F(BesideAProgram, AThreadFollowsItToItsCores) {
  expected = two_cores_in_turn();
  if (expected.empty()) GTEST_SKIP() << "there is one core";
  const std::set<int> before = own_cores();
  wait();
  EXPECT_EQ(own_cores(), before);
}

TEST_F(BesideAProgram, AThreadFollowsItWhileItHasWork) {
  expected = two_cores_in_turn();
  if (expected.empty()) GTEST_SKIP() << "there is one core";
  is_busy = true;
  wait();
}

TEST_F(BesideAProgram, AThreadIsNotBoundIfNoOtherRankComputes) {
  if (two_cores_in_turn().empty()) GTEST_SKIP() << "there is one core";
  peers_compute = false;
  wait();
  EXPECT_FALSE(was_bound);
}

TEST_F(BesideAProgram, AThreadIsNotBoundWhileADeviceWorks) {
  if (two_cores_in_turn().empty()) GTEST_SKIP() << "there is one core";
  has_device_work = true;
  sources.note_device();
  wait();
  EXPECT_FALSE(was_bound);
}

TEST_F(BesideAProgram, AThreadThatPollsIsNotBound) {
  expected = two_cores_in_turn();
  if (expected.empty()) GTEST_SKIP() << "there is one core";
  expected.resize(1);
  can_sleep = false;
  wait();
  EXPECT_TRUE(is_unbound_again);
}

TEST(ApplicationThread, IsTheThreadOfTheLastCall) {
  ApplicationThread program;
  std::latch has_called(1), may_end(1);
  std::thread thread([&] {
    program.note_call();
    has_called.count_down();
    may_end.wait();
  });
  has_called.wait();
  EXPECT_TRUE(becomes(program, rests));
  program.note_call();
  std::atomic<bool> has_asked{false};
  bool is_running = false;
  std::thread asking([&] {
    is_running = becomes(program, runs);
    has_asked = true;
  });
  while (!has_asked) {
  }
  asking.join();
  EXPECT_TRUE(is_running) << "this thread computes";
  may_end.count_down();
  thread.join();
}

TEST(ApplicationThread, IsNoProgramThatComputesIfItAsksItself) {
  ApplicationThread program;
  program.note_call();
  EXPECT_FALSE(program.state().is_running);
}

TEST(ApplicationThread, IsNotAThreadThatIsLeftOut) {
  ApplicationThread program;
  std::atomic<bool> may_end{false};
  std::latch has_called(1);
  std::thread thread([&] {
    ApplicationThread::leave_out_this_thread();
    program.note_call();
    has_called.count_down();
    while (!may_end) {
    }
  });
  has_called.wait();
  EXPECT_FALSE(program.state().is_running);
  may_end = true;
  thread.join();
}

}  // namespace
}  // namespace xylem::runtime
