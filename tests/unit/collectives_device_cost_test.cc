// SPDX-License-Identifier: Apache-2.0
//
// The times that the cost model predicts for calls on device memory.
#include "model/plans.h"
#include "xylem/collectives/choose.h"
#include "xylem/collectives/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace xylem::collectives {
namespace {

constexpr std::uint64_t kMebibyte = 1024 * 1024;

// Messages take 2 us plus 1 ns per byte. The device costs nothing, unless a test sets its costs.
CostModel with_device() {
  CostModel model;
  model.local = {2, 1};
  model.remote = {20, 0.5};
  model.step_us = model.exchange_step_us = 0;
  model.slice_bytes = 10000;
  model.compute = {.reduce_GBps = 1e9, .copy_GBps = 1e9, .is_device = true};
  return model;
}

double predicted(const CostModel& model,
                 Collective collective,
                 std::string_view algorithm,
                 std::uint32_t ranks,
                 std::uint64_t bytes) {
  Chooser chooser(model);
  // A size class is estimated for its smallest size, so the tests use powers of two.
  return chooser.choose({collective, ranks, 0}, bytes, algorithm)->predicted_us;
}

TEST(DeviceCost, IsTheCoreForItsStartAndTheDeviceForTheWork) {
  CostModel model = with_device();
  model.slice_bytes = kMebibyte;
  const auto reduce = [&] { return predicted(model, Collective::reduce, "binomial", 2, 8192); };
  const double message = reduce();
  EXPECT_NEAR(message, 2 + 8.192, 1e-3);
  model.compute.reduce_GBps = 2;
  EXPECT_NEAR(reduce(), message + 4.096, 1e-3);
  model.compute.enqueue_us = 3;
  EXPECT_NEAR(reduce(), message + 4.096 + 3, 1e-3);
  model.compute.latency_us = 5;
  EXPECT_NEAR(reduce(), message + 4.096 + 3 + 5, 1e-3);
  // The core is free while the device works. If the compute is the CPU, it has no latencies.
  model.compute.is_device = false;
  EXPECT_NEAR(reduce(), message + 4.096, 1e-3);
}

TEST(DeviceCost, HasItsLatencyOnceForManySlices) {
  CostModel model = with_device();
  model.compute.reduce_GBps = 2;
  const double quick = predicted(model, Collective::reduce, "binomial", 2, kMebibyte);
  model.compute.latency_us = 500;
  EXPECT_NEAR(predicted(model, Collective::reduce, "binomial", 2, kMebibyte), quick + 500, 1);
  // Enqueueing a slice occupies the core, so the time is counted for each slice.
  model.compute.latency_us = 0;
  model.compute.enqueue_us = 50;
  EXPECT_NEAR(predicted(model, Collective::reduce, "binomial", 2, kMebibyte), 105 * 50, 100);
}

TEST(DeviceCost, ContainsTheWayThroughTheHostIfSchedulesAreStaged) {
  CostModel model = with_device();
  model.slice_bytes = kMebibyte;
  model.compute.host_GBps = 0.5;
  // A copy to the host, the message, and a copy from the host.
  EXPECT_NEAR(predicted(model, Collective::broadcast, "binomial", 2, 8192), 2 + 8.192 + 2 * 16.384,
              1e-3);
  // The reduction reads the received data from host memory, without a copy.
  EXPECT_NEAR(predicted(model, Collective::reduce, "binomial", 2, 8192), 2 + 8.192 + 2 * 16.384,
              1e-3);
  // The link to the host moves data in both directions at once. The time of the device's memory
  // overlaps with this.
  model.slice_bytes = 10000;
  const double both = predicted(model, Collective::all_gather, "ring", 2, kMebibyte);
  EXPECT_NEAR(both, kMebibyte / 0.5e3, 100);
}

TEST(DeviceCost, IsTheSameForAllRanksAsForTheirRepresentatives) {
  CostModel model = with_device();
  model.compute = {.reduce_GBps = 3,
                   .copy_GBps = 4,
                   .is_device = true,
                   .enqueue_us = 1,
                   .latency_us = 5,
                   .host_GBps = 2};
  for (const Planner& planner : planners()) {
    if (planner.symmetry == nullptr) continue;
    const Shape shape{planner.collective, 8, 0, 8};
    Chooser chooser(model);
    const Choice choice = *chooser.choose(shape, kMebibyte, planner.name);
    std::vector<Schedule> ranks;
    for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) ranks.push_back(choice.schedule(rank));
    const double all = estimate_us(ranks, {.count = kMebibyte}, model);
    EXPECT_NEAR(choice.predicted_us, all, 1e-6 * all) << planner.name;
  }
}

TEST(DeviceCost, ChoosesAmongStagedSchedulesThatAreProven) {
  CostModel model = with_device();
  model.compute.host_GBps = 2;
  for (const Planner& planner : planners()) {
    Chooser chooser(model);
    const Choice choice = *chooser.choose({planner.collective, 6, 0}, kMebibyte, planner.name);
    EXPECT_TRUE(choice.model->compute.is_staged());
    std::vector<Schedule> ranks;
    for (std::uint32_t rank = 0; rank < 6; ++rank) ranks.push_back(choice.schedule(rank));
    EXPECT_TRUE(verify(ranks)) << planner.name;
    for (const Schedule& schedule : ranks) {
      const bool is_staged = std::ranges::all_of(schedule.steps, [&](const Step& step) {
        return step.kind != StepKind::send || step.chunk_count == 0 ||
               schedule.operands[step.first_source].buffer == Buffer::scratch;
      });
      EXPECT_TRUE(is_staged) << planner.name << ": a message of the device's own memory";
    }
  }
  model.compute.host_GBps = 0;
  EXPECT_FALSE(
      Chooser(model).choose({Collective::all_reduce, 4, 0}, kMebibyte)->model->compute.is_staged());
}

TEST(DeviceCost, StagesOnlyMessagesToOtherHostsIfItIsToldSo) {
  CostModel model = with_device();
  model.host = {0, 0, 0, 1, 1, 1};
  model.compute.host_GBps = 2;
  model.compute.stages_local = false;
  for (const Planner& planner : planners()) {
    Chooser chooser(model);
    const Choice choice = *chooser.choose({planner.collective, 6, 0}, kMebibyte, planner.name);
    for (std::uint32_t rank = 0; rank < 6; ++rank) {
      const Schedule plain = planner.plan(choice.shape, rank), made = choice.schedule(rank);
      const auto sends_from_scratch = [](const Schedule& schedule, std::uint32_t host) {
        return std::ranges::count_if(schedule.steps, [&](const Step& step) {
          return step.kind == StepKind::send && step.chunk_count > 0 && step.peer / 3 == host &&
                 schedule.operands[step.first_source].buffer == Buffer::scratch;
        });
      };
      const auto all_sends = [](const Schedule& schedule, std::uint32_t host) {
        return std::ranges::count_if(schedule.steps, [&](const Step& step) {
          return step.kind == StepKind::send && step.chunk_count > 0 && step.peer / 3 == host;
        });
      };
      const std::uint32_t own = rank / 3;
      EXPECT_EQ(sends_from_scratch(made, own), sends_from_scratch(plain, own)) << planner.name;
      EXPECT_EQ(sends_from_scratch(made, 1 - own), all_sends(plain, 1 - own)) << planner.name;
    }
  }
}

}  // namespace
}  // namespace xylem::collectives
