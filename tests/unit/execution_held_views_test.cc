// SPDX-License-Identifier: Apache-2.0
#include "support/engine_parts.h"
#include "xylem/execution/held_views.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>

namespace xylem::execution {
namespace {

/// Executions of a program whose only step receives slices into a ring and reads them by views.
class HeldViewsTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kWindow = 4;
  static constexpr std::uint64_t kBytes = 64;

  struct Receiver : TestExecution {
    std::array<std::byte, kWindow * kBytes> ring{};
  };

  HeldViewsTest() {
    program.slice_bytes = kBytes;
    program.window = program.view_count = kWindow;
    program.lanes.push_back({.peer = 3});
    program.steps.resize(1);
    program.steps[0].bytes = 1000 * kBytes;
    program.steps[0].target = {.buffer = Buffer::scratch, .ring = true, .base = 2, .view = 0};
    message.fill(std::byte{42});
    for (Receiver* receiver : {&first, &second}) {
      receiver->set_references(1);
      receiver->run.program = &program;
      receiver->run.views.resize(kWindow);
      receiver->run.base[2] = receiver->ring.data();
    }
    first.active_next = &second;
  }
  HeldView& hold(Receiver& receiver, std::uint32_t slice, bool is_on_device = false) {
    HeldView& held = receiver.run.view_at(program.steps[0].target, slice);
    held = {&transport, {.data = message.data(), .is_on_device = is_on_device}, 0, slice};
    views.add(receiver.run, held);
    return held;
  }
  void use_device(Receiver& receiver) {
    receiver.run.device.compute = &device;
    receiver.run.device.memory[0] = {MemoryKind::cuda, 0};
  }
  /// Returns the number of rounds after which a view has been evicted, at most `most`.
  unsigned rounds_until_evicted(unsigned most) {
    unsigned rounds = 0;
    while (transport.released == 0 && rounds < most) {
      views.evict_if_unchanged(&first);
      ++rounds;
    }
    return rounds;
  }

  Program program;
  std::array<std::byte, kBytes> message;
  NotedViews transport;
  NotedErrors errors;
  HandDriven device;
  PendingWork pending;
  HeldViews views{errors, pending};
  Receiver first, second;
};

TEST_F(HeldViewsTest, AnEvictedViewIsCopiedToItsPlaceAndReleased) {
  hold(first, 5);
  EXPECT_FALSE(views.empty());
  EXPECT_TRUE(views.evict(&first));
  EXPECT_EQ(first.ring[kBytes], std::byte{42});
  EXPECT_EQ(first.ring[2 * kBytes - 1], std::byte{42});
  EXPECT_EQ(first.ring[2 * kBytes], std::byte{});
  EXPECT_EQ(first.run.view_of(program.steps[0].target, 5), nullptr);
  EXPECT_EQ(transport.released, 1U);
  EXPECT_TRUE(views.empty());
  EXPECT_FALSE(views.evict(&first));
}

TEST_F(HeldViewsTest, AreEvictedWhenTheyHaveNotChangedForTheDelay) {
  constexpr std::chrono::milliseconds kDelay(2);
  views.set_eviction_delay(kDelay);
  const auto begin = Clock::now();
  hold(first, 0);
  const auto limit = Deadline::after(std::chrono::seconds(30));
  while (transport.released == 0 && !limit.passed()) views.evict_if_unchanged(&first);
  EXPECT_EQ(transport.released, 1U);
  EXPECT_GE(Clock::now() - begin, kDelay);
}

TEST_F(HeldViewsTest, AreNotEvictedBeforeTheDelayOrWhileTheyChange) {
  constexpr unsigned kRounds = 100'000;
  views.set_eviction_delay(std::chrono::hours(1));
  hold(first, 0);
  EXPECT_EQ(rounds_until_evicted(kRounds), kRounds);
  views.set_eviction_delay({});
  for (unsigned i = 0; i < kRounds; ++i) {
    if (i % 10 == 0) views.add(second.run, second.run.views[0]);
    views.evict_if_unchanged(&first);
  }
  EXPECT_EQ(transport.released, 0U);
  EXPECT_LT(rounds_until_evicted(kRounds), kRounds);
}

// A view in device memory occupies no slot, so it may be held longer.
TEST_F(HeldViewsTest, OnADeviceStayForAHundredTimesTheDelay) {
  constexpr std::chrono::microseconds kDelay(50);
  views.set_eviction_delay(kDelay);
  const auto begin = Clock::now();
  for (Receiver* receiver : {&first, &second}) {
    use_device(*receiver);
    hold(*receiver, 0, /*is_on_device=*/true);
  }
  const auto limit = Deadline::after(std::chrono::seconds(30));
  while (device.pieces.empty() && !limit.passed()) views.evict_if_unchanged(&first);
  EXPECT_EQ(device.pieces.size(), 2U);
  EXPECT_GE(Clock::now() - begin, 100 * kDelay);
}

TEST_F(HeldViewsTest, OnADeviceAreReleasedWhenItHasCopiedThem) {
  use_device(first);
  const HeldView& held = hold(first, 1, /*is_on_device=*/true);
  EXPECT_FALSE(views.evict(&first)) << "the call runs alone";
  hold(second, 0);
  EXPECT_TRUE(views.evict(&first));
  EXPECT_TRUE(held.is_evicted);
  EXPECT_EQ(device.pieces, std::vector{kBytes});
  EXPECT_EQ(transport.released, 1U);  // The view of the other execution.
  EXPECT_FALSE(views.evict(&first)) << "it is under way already";
  device.done = 1;
  pending.poll([](Execution&, bool) {},
               [&](const PendingWork::Work& work) {
                 EXPECT_TRUE(work.evicts);
                 views.on_copied(work);
               });
  EXPECT_EQ(transport.released, 2U);
  EXPECT_FALSE(held.is_evicted);
  EXPECT_TRUE(views.empty());
}

TEST_F(HeldViewsTest, StayWhileADeviceReadsThem) {
  use_device(first);
  hold(first, 1, /*is_on_device=*/true).is_read = true;
  hold(second, 0);
  views.evict(&first);
  EXPECT_TRUE(device.pieces.empty());
  views.release_all(first);
  EXPECT_EQ(transport.released, 1U);
  EXPECT_FALSE(views.empty());
}

TEST_F(HeldViewsTest, AWithdrawnMessageIsReportedOnce) {
  HeldView& held = hold(first, 0);
  hold(first, 1);
  transport.is_withdrawn = true;
  views.release(first, held);
  EXPECT_TRUE(first.run.is_lost);
  views.evict(&first);
  EXPECT_EQ(errors.wire_errors, (std::vector{std::pair{3U, Code::peer_lost}}));
  EXPECT_TRUE(views.empty());
}

}  // namespace
}  // namespace xylem::execution
