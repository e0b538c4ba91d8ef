// SPDX-License-Identifier: Apache-2.0
#include "execution/src/fusion.h"
#include "execution/src/reservation.h"
#include "support/engine_call.h"
#include "support/engine_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace xylem::execution {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using transport::ReserveResult;

/// The root of a broadcast to two peers. It sends three slices to each of them.
class ReservationTest : public testing::Test {
 protected:
  ReservationTest() {
    peers.rank = 2;
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      peers.links.push_back({.views = &views, .endpoint = 10 + rank, .view_bytes = 4096});
      peers.groups.push_back(group_of(rank));
    }
    auto& run = execution.run;
    run.program = program.get();
    run.steps.resize(program->steps.size());
    run.lanes.resize(program->lanes.size());
    run.base[0] = run.base[1] = memory;
    execution.peers = &peers;
    send = program->cast_sends.front();
  }
  Reservation reserve(std::uint32_t slice = 0) {
    return Reservation::reserve(execution, program->steps[send], collectives::kNone, slice);
  }

  const EngineCall call{collectives::find_planner(Collective::broadcast, "direct"), 3, 700};
  std::shared_ptr<const Program> program =
      call.program(call.plan(2), {.slice_bytes = 1024, .window = 3});
  NotedViews views;
  Peers peers;
  TestExecution execution;
  std::byte memory[4096];
  StepId send = 0;
};

TEST_F(ReservationTest, ServesAllSendsOfTheCast) {
  Reservation slot = reserve();
  ASSERT_TRUE(slot);
  EXPECT_EQ(slot.memory(), views.slot);
  EXPECT_THAT(views.reserved_for, ElementsAre(10, 11));
  slot.commit();
  EXPECT_FALSE(slot);
  EXPECT_THAT(views.sent_to, ElementsAre(10, 11));
  for (const StepId id : program->cast_sends) {
    EXPECT_EQ(execution.run.steps[id].issued, 1U);
    EXPECT_EQ(execution.run.steps[id].completed, 1U);
    EXPECT_TRUE(execution.run.steps[id].queued) << "it has more slices";
  }
}

TEST_F(ReservationTest, IsAbandonedUnlessItIsCommitted) {
  { const Reservation slot = reserve(); }
  EXPECT_EQ(views.abandoned, 1U);
  EXPECT_EQ(execution.run.steps[send].issued, 0U);
  { reserve().commit(); }
  EXPECT_EQ(views.abandoned, 1U);
}

TEST_F(ReservationTest, IsAbandonedOnceIfItIsMoved) {
  Reservation slot = reserve();
  {
    const Reservation moved = std::move(slot);
    EXPECT_FALSE(slot);  // NOLINT(bugprone-use-after-move)
    EXPECT_TRUE(moved);
  }
  EXPECT_EQ(views.abandoned, 1U);
}

TEST_F(ReservationTest, WaitsOnlyIfItIsForOneSendAlone) {
  views.room = ReserveResult::retry_later;
  EXPECT_FALSE(reserve());
  EXPECT_FALSE(reserve().must_wait(send)) << "one peer alone may have room";
  const StepId other = program->cast_sends.back();
  execution.run.steps[other].issued = 1;  // It has already sent this slice.
  EXPECT_TRUE(reserve().must_wait(send));
  EXPECT_FALSE(reserve().must_wait(other));
  EXPECT_EQ(views.abandoned, 0U);
}

TEST_F(ReservationTest, IsNotMadeForWhatCannotBeSentNow) {
  EXPECT_FALSE(reserve(1)) << "slice 0 comes first";
  peers.links[0].view_bytes = 0;
  EXPECT_TRUE(reserve());
  EXPECT_THAT(views.reserved_for, ElementsAre(11));
  views.reserved_for.clear();
  peers.links[1].inline_bytes = 4096;
  EXPECT_FALSE(reserve());
  EXPECT_THAT(views.reserved_for, IsEmpty());
}

// The listener may cancel messages. This is not allowed while a slot is reserved.
TEST_F(ReservationTest, IsAbandonedBeforeALostMessageIsReported) {
  const EngineCall chain{collectives::find_planner(Collective::broadcast, "ring"), 3, 700};
  program = chain.program(chain.plan(0), {.slice_bytes = 1024, .window = 3});
  peers.rank = 0;
  auto& run = execution.run;
  run.program = program.get();
  run.steps.assign(program->steps.size(), {});
  run.lanes.assign(program->lanes.size(), {});
  const auto passed_on = std::ranges::find_if(program->steps, [](const ProgramStep& step) {
    return step.kind == collectives::StepKind::recv && step.cast != collectives::kNone;
  });
  ASSERT_NE(passed_on, program->steps.end());
  NotedErrors errors;
  PendingWork pending;
  HeldViews held(errors, pending);
  unsigned abandoned = 0;
  errors.on_error = [&] { abandoned = views.abandoned; };
  views.is_withdrawn = true;
  const auto id = static_cast<StepId>(passed_on - program->steps.begin());
  transport::View view;
  view.data = memory;
  view.bytes = 1024;
  view.may_change = true;
  receive_slice(held, execution, {.views = &views, .view = view, .step = id});
  EXPECT_EQ(abandoned, 1U);
  EXPECT_THAT(errors.wire_errors, ElementsAre(testing::Pair(2U, Code::peer_lost)));
  EXPECT_THAT(views.sent_to, IsEmpty());
}

}  // namespace
}  // namespace xylem::execution
