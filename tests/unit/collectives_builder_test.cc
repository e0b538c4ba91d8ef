// SPDX-License-Identifier: Apache-2.0
//
// The builder adds exactly the dependencies that avoid hazards. Also tests the edges and rings of
// the pipeline.
#include "xylem/collectives/alias.h"
#include "xylem/collectives/builder.h"
#include "xylem/collectives/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace xylem::collectives {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr Shape kAllReduce{Collective::all_reduce, 4, 0};

std::vector<StepId> after(const Schedule& schedule, StepId id) {
  const auto before = schedule.predecessors_of(schedule.steps[id]);
  return {before.begin(), before.end()};
}

TEST(Builder, OrdersReadsAfterTheLastWrite) {
  Builder plan("test", kAllReduce, 1, 2);
  plan.recv(0, output(0));
  plan.recv(0, output(1));
  plan.send(2, output(0));
  plan.send(2, output(0, 2));
  const Schedule schedule = std::move(plan).take();
  EXPECT_THAT(after(schedule, 1), IsEmpty());
  EXPECT_THAT(after(schedule, 2), ElementsAre(0));
  EXPECT_THAT(after(schedule, 3), ElementsAre(0, 1));
}

TEST(Builder, OrdersWritesAfterAllReadsSinceTheLastWrite) {
  Builder plan("test", kAllReduce, 1, 1);
  plan.recv(0, output(0));
  plan.send(2, output(0));
  plan.send(3, output(0));
  plan.recv(0, output(0));
  plan.recv(0, output(0));
  const Schedule schedule = std::move(plan).take();
  EXPECT_THAT(after(schedule, 3), ElementsAre(1, 2));  // Both depend on step 0.
  EXPECT_THAT(after(schedule, 4), ElementsAre(3));
}

TEST(Builder, CountsAReductionIntoItsSourceAsOneAccess) {
  Builder plan("test", kAllReduce, 1, 1);
  const Chunks sum = plan.add_scratch(0);
  plan.recv(0, sum);
  plan.reduce(sum, {sum, input(0)});
  plan.send(2, sum);
  const Schedule schedule = std::move(plan).take();
  EXPECT_THAT(after(schedule, 1), ElementsAre(0));
  EXPECT_THAT(after(schedule, 2), ElementsAre(1));
}

TEST(Builder, OrdersWritesThatReachTheInputInPlace) {
  Builder plan("test", kAllReduce, 1, 2);
  plan.send(2, input(0));
  plan.send(3, input(1));
  plan.recv(0, output(0));
  plan.send(2,
            // If the call is in place, this sends received data. The verifier must reject this; the
            // builder only orders it.
            input(0));
  const Schedule schedule = std::move(plan).take();
  EXPECT_THAT(after(schedule, 2), ElementsAre(0));
  EXPECT_THAT(after(schedule, 3), ElementsAre(2));
}

TEST(Builder, TakesCopiesOntoThemselvesForNothingInPlace) {
  Builder plan("test", {Collective::all_gather, 4, 0}, 1);
  plan.copy(output(1), input(0));
  plan.send(2, input(0));
  plan.send(2, output(1));
  const Schedule schedule = std::move(plan).take();
  EXPECT_THAT(after(schedule, 1), IsEmpty());
  EXPECT_THAT(after(schedule, 2), ElementsAre(0));
}

TEST(Builder, AddsDependenciesOnRequestOnceAndSorted) {
  Builder plan("test", {Collective::barrier, 4, 0}, 1);
  const StepId first = plan.signal(0);
  const StepId second = plan.signal(2);
  const StepId third = plan.wait(3, 1);
  plan.after(third, second);
  plan.after(third, first);
  plan.after(third, second);
  EXPECT_THAT(after(std::move(plan).take(), third), ElementsAre(first, second));
}

TEST(Builder, LeavesOtherRanksMemoryToItsCaller) {
  Builder plan("test", kAllReduce, 1, 2);
  plan.recv(0, output(0));
  plan.reduce(output(0), {Chunks{Buffer::output, 0, 1, 3}, input(0)});
  plan.put(2, output(1), input(1));
  plan.put(2, output(1), input(1));
  const Schedule schedule = std::move(plan).take();
  EXPECT_THAT(after(schedule, 1), ElementsAre(0));
  EXPECT_THAT(after(schedule, 2), IsEmpty());
  EXPECT_THAT(after(schedule, 3), IsEmpty());
  EXPECT_EQ(schedule.operands[schedule.steps[2].target], (Operand{2, 1, Buffer::output}));
}

TEST(BuilderDeathTest, RefusesChunksThatDoNotExist) {
  EXPECT_DEATH(Builder("test", kAllReduce, 1, 2).send(0, input(2)), "");
  EXPECT_DEATH(Builder("test", kAllReduce, 1, 2).send(0, scratch(0)), "");
  EXPECT_DEATH(Builder("test", kAllReduce, 1, 2).copy(output(0), input(0, 2)), "");
}

std::vector<Edge> edges_into(const Pipeline& pipeline, StepId id) {
  return {pipeline.edges.begin() + pipeline.first_edge[id],
          pipeline.edges.begin() + pipeline.first_edge[id + 1]};
}

TEST(Pipeline, JoinsSlicesOfTheSameBlocksAndWholeStepsOtherwise) {
  Builder plan("test", kAllReduce, 1, 2);
  plan.recv(0, output(0, 2));
  plan.send(2, output(0, 2));
  plan.send(2, output(1));
  const Pipeline result = pipeline(std::move(plan).take());
  EXPECT_THAT(edges_into(result, 1), ElementsAre(Edge{0, EdgeKind::slice}));
  EXPECT_THAT(edges_into(result, 2), ElementsAre(Edge{0, EdgeKind::whole}));
}

TEST(Pipeline, MakesRingsOfScratchThatIsWrittenOnceAndReadSliceBySlice) {
  Builder plan("test", kAllReduce, 1, 1);
  const Chunks partial = plan.add_scratch(0);
  plan.recv(0, partial);
  plan.reduce(output(0), {partial, input(0)});
  plan.send(2, partial);
  const Pipeline result = pipeline(std::move(plan).take());
  EXPECT_THAT(result.windowed, ElementsAre(true));
  EXPECT_THAT(edges_into(result, 0), ElementsAre(Edge{1, EdgeKind::lag}, Edge{2, EdgeKind::lag}));
  EXPECT_THAT(edges_into(result, 1), ElementsAre(Edge{0, EdgeKind::slice}));
}

TEST(Pipeline, KeepsScratchWholeThatIsWrittenTwice) {
  Builder plan("test", kAllReduce, 1, 1);
  const Chunks sum = plan.add_scratch(0);
  plan.recv(0, sum);
  plan.reduce(sum, {sum, input(0)});
  EXPECT_THAT(pipeline(std::move(plan).take()).windowed, ElementsAre(false));
}

TEST(Pipeline, KeepsScratchWholeThatIsNamedInARun) {
  Builder plan("test", kAllReduce, 1, 2);
  const Chunks both = plan.add_scratch(0, 2);
  plan.recv(0, scratch(both.first));
  plan.recv(0, scratch(both.first + 1));
  plan.send(2, both);
  EXPECT_THAT(pipeline(std::move(plan).take()).windowed, ElementsAre(false, false));
}

TEST(Pipeline, KeepsScratchWholeThatIsReadWithoutFollowingItsWriter) {
  Builder plan("test", kAllReduce, 1, 1);
  const Chunks partial = plan.add_scratch(0);
  plan.recv(0, partial);
  plan.send(2, partial);
  Schedule schedule = std::move(plan).take();
  schedule.steps[1].predecessor_count = 0;
  EXPECT_THAT(pipeline(schedule).windowed, ElementsAre(false));
}

TEST(Pipeline, KeepsScratchWholeWhereOthersMayNameIt) {
  const auto windowed = [](auto&& one_sided) -> bool {
    Builder plan("test", kAllReduce, 1, 1);
    const Chunks partial = plan.add_scratch(0);
    plan.recv(0, partial);
    plan.reduce(output(0), {partial, input(0)});
    one_sided(plan);
    return pipeline(std::move(plan).take()).windowed[0];
  };
  EXPECT_TRUE(windowed([](Builder&) {}));
  EXPECT_FALSE(windowed([](Builder& plan) { plan.signal(2); }));
  EXPECT_FALSE(windowed([](Builder& plan) { plan.wait(2, 1); }));
  EXPECT_FALSE(windowed([](Builder& plan) { plan.put(2, output(0), input(0)); }));
  EXPECT_FALSE(windowed([](Builder& plan) {
    plan.copy(output(0), Chunks{Buffer::input, 0, 1, 3});
  }));
}

TEST(Alias, OverlaysWhatEachCollectiveAllows) {
  using C = Collective;
  const auto at = [](C collective, std::uint32_t rank, std::uint32_t chunk) {
    return aliased_input({collective, 4, has_root(collective) ? 2U : 0U}, rank, chunk);
  };
  EXPECT_EQ(at(C::all_reduce, 1, 3), 3U);
  EXPECT_EQ(at(C::reduce, 2, 3), 3U);
  EXPECT_EQ(at(C::reduce, 1, 3), std::nullopt);
  EXPECT_EQ(at(C::broadcast, 2, 0), 0U);
  EXPECT_EQ(at(C::all_gather, 1, 1), 0U);
  EXPECT_EQ(at(C::all_gather, 1, 2), std::nullopt);
  EXPECT_EQ(at(C::gather, 2, 2), 0U);
  EXPECT_EQ(at(C::gather, 1, 1), std::nullopt);
  EXPECT_EQ(at(C::reduce_scatter, 3, 0), 3U);
  EXPECT_EQ(at(C::scatter, 2, 0), 2U);
  EXPECT_EQ(at(C::scatter, 1, 0), std::nullopt);
  EXPECT_EQ(at(C::all_to_all, 1, 1), std::nullopt);
  EXPECT_FALSE(allows_in_place(C::all_to_all));
  EXPECT_FALSE(allows_in_place(C::barrier));
  EXPECT_TRUE(allows_in_place(C::scatter));
}

}  // namespace
}  // namespace xylem::collectives
