// SPDX-License-Identifier: Apache-2.0
#include "support/engine_parts.h"
#include "xylem/execution/pending_work.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <vector>

namespace xylem::execution {
namespace {

class PendingWorkTest : public testing::Test {
 protected:
  PendingWorkTest() {
    for (TestExecution* execution : {&first, &second}) {
      execution->set_references(1);
      execution->run.device.compute = &device;
      execution->run.device.gate = {7, 0};
    }
  }
  void add(Execution& execution, std::uint32_t slice, std::uint64_t number, std::uint32_t queue) {
    pending.add({.execution = &execution, .slice = slice, .ticket = {number, queue}});
  }
  /// Returns the slices of the work that has completed since the last call.
  std::vector<std::uint32_t> ended() {
    std::vector<std::uint32_t> slices;
    pending.poll([](Execution&, bool) { ADD_FAILURE() << "there is no gate"; },
                 [&](const PendingWork::Work& work) { slices.push_back(work.slice); });
    return slices;
  }
  /// For each gate that has ended: true if it was open.
  std::vector<bool> ended_gates() {
    std::vector<bool> open;
    pending.poll([&](Execution&, bool is_open) { open.push_back(is_open); },
                 [](const PendingWork::Work&) { ADD_FAILURE() << "there is no work"; });
    return open;
  }

  HandDriven device;
  PendingWork pending;
  TestExecution first, second;
};

using Slices = std::vector<std::uint32_t>;

TEST_F(PendingWorkTest, WorkEndsInTheOrderOfItsQueue) {
  EXPECT_TRUE(pending.empty());
  add(first, 0, 1, 0);
  add(second, 1, 3, 0);
  add(first, 2, 2, 1);
  EXPECT_EQ(ended(), Slices{});
  EXPECT_EQ(first.outstanding, 2U);
  device.done = 2;
  EXPECT_EQ(ended(), (Slices{0, 2}));
  EXPECT_EQ(first.outstanding, 0U);
  EXPECT_FALSE(pending.empty());
  device.done = 3;
  EXPECT_EQ(ended(), Slices{1});
  EXPECT_TRUE(pending.empty());
}

TEST_F(PendingWorkTest, WorkMayBeAddedWhileOtherWorkEnds) {
  device.done = 10;
  add(first, 0, 1, 0);
  Slices slices;
  const unsigned calls = pending.poll([](Execution&, bool) {},
                                      [&](const PendingWork::Work& work) {
                                        slices.push_back(work.slice);
                                        // Each in another queue.
                                        if (work.slice < 5)
                                          add(second, work.slice + 1, 2, work.slice + 1);
                                      });
  EXPECT_EQ(slices, (Slices{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(calls, 6U);
  EXPECT_TRUE(pending.empty());
}

TEST_F(PendingWorkTest, AnExecutionMayEndWithItsWork) {
  add(first, 0, 1, 0);
  device.done = 1;
  pending.poll([](Execution&, bool) {},
               [&](const PendingWork::Work&) {
                 first.release();
                 EXPECT_EQ(first.unreferenced_times, 0U);
               });
  EXPECT_EQ(first.unreferenced_times, 1U);
}

TEST_F(PendingWorkTest, AGateEndsWhenItIsOpenOrLate) {
  pending.add_gate(first, Deadline::after(std::chrono::hours(1)));
  pending.add_gate(second, Deadline::after(std::chrono::hours(1)));
  EXPECT_EQ(ended_gates(), std::vector<bool>{});
  EXPECT_EQ(first.outstanding, 1U);
  device.done = 7;
  EXPECT_EQ(ended_gates(), (std::vector{true, true}));
  pending.add_gate(first, Deadline::after(std::chrono::hours(-1)));
  EXPECT_EQ(ended_gates(), std::vector{true});
  device.done = 6;
  pending.add_gate(first, Deadline::after(std::chrono::hours(-1)));
  EXPECT_EQ(ended_gates(), std::vector{false});
  EXPECT_EQ(first.outstanding + second.outstanding, 0U);
}

TEST_F(PendingWorkTest, CancelledWorkStaysPendingAndAGateDoesNot) {
  add(first, 0, 1, 0);
  add(second, 1, 2, 0);
  pending.add_gate(first, Deadline::after(std::chrono::hours(1)));
  pending.cancel(first);
  EXPECT_EQ(device.cancelled, std::vector<std::uint64_t>{1});
  EXPECT_EQ(first.outstanding, 1U);
  device.done = 10;
  EXPECT_EQ(ended(), (Slices{0, 1}));
  EXPECT_TRUE(pending.empty());
}

}  // namespace
}  // namespace xylem::execution
