// SPDX-License-Identifier: Apache-2.0
//
// ProgramThread: whether the thread that makes the calls is running.
#include "progress.h"
#include "xylem/base/clock.h"

#include <gtest/gtest.h>

#include <sys/prctl.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <thread>

namespace xylem::runtime {
namespace {

/// Asks until the answer is `expected`, for 20 s.
bool becomes(ProgramThread& program, bool expected) {
  const Deadline patience = Deadline::after(std::chrono::seconds(20));
  while (program.is_running() != expected) {
    if (patience.passed()) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST(ProgramThread, IsNotRunningBeforeAnyCall) { EXPECT_FALSE(ProgramThread().is_running()); }

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
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(program.is_running());
  computes = false;
  EXPECT_TRUE(becomes(program, false));
  may_end.count_down();
  thread.join();
  EXPECT_FALSE(program.is_running());
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
  EXPECT_TRUE(becomes(program, false));
  program.note_call();
  std::atomic<bool> has_asked{false};
  bool is_running = false;
  std::thread asking([&] {
    is_running = becomes(program, true);
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
  EXPECT_FALSE(program.is_running());
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
  EXPECT_FALSE(program.is_running());
  may_end = true;
  thread.join();
}

}  // namespace
}  // namespace xylem::runtime
