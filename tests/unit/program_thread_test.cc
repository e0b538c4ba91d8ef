// SPDX-License-Identifier: Apache-2.0
//
// ProgramThread: whether the thread that makes the calls is running, and where. CoreBinding.
#include "core_binding.h"
#include "progress.h"
#include "xylem/base/clock.h"

#include <gtest/gtest.h>

#include <sched.h>
#include <sys/prctl.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <set>
#include <thread>

namespace xylem::runtime {
namespace {

/// Asks until `holds(answer)`, for 20 s.
template <typename Holds>
bool becomes(ProgramThread& program, Holds holds) {
  const Deadline patience = Deadline::after(std::chrono::seconds(20));
  while (!holds(program.look())) {
    if (patience.passed()) return false;
    std::this_thread::yield();
  }
  return true;
}
bool runs(const ProgramThread::Look& look) { return look.is_running; }
bool rests(const ProgramThread::Look& look) { return !look.is_running; }
/// A thread that was joined is in the system for a moment longer.
bool is_gone(const ProgramThread::Look& look) { return !look.is_running && look.core == -1; }

TEST(ProgramThread, IsNotRunningBeforeAnyCall) { EXPECT_FALSE(ProgramThread().look().is_running); }

TEST(ProgramThread, RunsWhileItComputesAndNotWhileItWaitsOrHasEnded) {
  ProgramThread program;
  std::latch has_called(1), may_end(1);
  std::atomic<bool> computes{true};
  std::thread thread([&] {
    // A name may have any characters, also those that stand before a state.
    ::prctl(PR_SET_NAME, "a) R (b");
    program.note_call();
    has_called.count_down();
    while (computes.load()) {
    }
    may_end.wait();
  });
  has_called.wait();
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(program.look().is_running);
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

TEST(ProgramThread, TellsItsCore) {
  for (const int core : own_cores()) {
    ProgramThread program;
    EXPECT_EQ(program.look().core, -1);
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
    EXPECT_EQ(program.look().core, core);
    may_end.count_down();
    thread.join();
    EXPECT_TRUE(becomes(program, is_gone));
  }
}

TEST(CoreBinding, IsForRanksWithOneCoreEach) {
  const auto shares_core = [](WaitMode mode, int cores, int places, int local_ranks) {
    return WaitPolicy::make(mode, cores, places, local_ranks).shares_core;
  };
  EXPECT_TRUE(shares_core(WaitMode::automatic, 2, 2, 2));
  EXPECT_TRUE(shares_core(WaitMode::automatic, 8, 8, 8));
  EXPECT_FALSE(shares_core(WaitMode::automatic, 1, 1, 1));
  EXPECT_FALSE(shares_core(WaitMode::automatic, 4, 4, 2));
  EXPECT_FALSE(shares_core(WaitMode::automatic, 2, 2, 3));
  EXPECT_FALSE(shares_core(WaitMode::sleep, 2, 2, 2));
  // A cgroup grants the time of two cores of 64, or of one core of two.
  EXPECT_FALSE(shares_core(WaitMode::automatic, 2, 64, 2));
  EXPECT_FALSE(shares_core(WaitMode::automatic, 1, 2, 2));
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
    // Only a core that the thread had before.
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (!before.contains(core)) binding.bind(core);
    }
    binding.bind(CPU_SETSIZE);
    EXPECT_EQ(own_cores(), std::set<int>{first});
    binding.release();
    EXPECT_EQ(own_cores(), before);
    binding.bind(last);
  }
  EXPECT_EQ(own_cores(), before);
}

TEST(ProgramThread, IsTheThreadOfTheLastCall) {
  ProgramThread program;
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

TEST(ProgramThread, IsNoProgramThatComputesIfItAsksItself) {
  ProgramThread program;
  program.note_call();
  EXPECT_FALSE(program.look().is_running);
}

TEST(ProgramThread, IsNotAThreadThatIsLeftOut) {
  ProgramThread program;
  std::atomic<bool> may_end{false};
  std::latch has_called(1);
  std::thread thread([&] {
    ProgramThread::leave_out_this_thread();
    program.note_call();
    has_called.count_down();
    while (!may_end) {
    }
  });
  has_called.wait();
  EXPECT_FALSE(program.look().is_running);
  may_end = true;
  thread.join();
}

}  // namespace
}  // namespace xylem::runtime
