// SPDX-License-Identifier: Apache-2.0
//
// Predicted times equal closed formulas. Choices depend on the constants, and their reasons can be
// printed.
#include "model/mapped_plans.h"
#include "model/plans.h"
#include "support/outcome.h"
#include "xylem/collectives/choose.h"
#include "xylem/collectives/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string>

namespace xylem::collectives {
namespace {

using testing::DoubleNear;
using testing::HasSubstr;

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kMiB = 1024 * 1024;

// Messages within a host take 2 us plus 1 ns per byte. All other costs are zero.
CostModel simple() {
  CostModel model;
  model.local = {2, 1};
  model.remote = {20, 0.5};
  model.compute.reduce_GBps = model.compute.copy_GBps = 1e9;
  model.step_us = model.exchange_step_us = 0;
  return model;
}

double estimate(Collective collective,
                std::string_view name,
                std::uint32_t ranks,
                std::uint64_t bytes,
                const CostModel& model) {
  const Planner* planner = find_planner(collective, name);
  return estimate_us(model::plan_all(*planner, {collective, ranks, 0}), {.count = bytes}, model);
}

TEST(Estimate, TakesLatencyAndBandwidthForOneMessage) {
  EXPECT_NEAR(estimate(Collective::broadcast, "binomial", 2, 10000, simple()), 2 + 10, 1e-6);
}

TEST(Estimate, AddsTheRoundsOfARing) {
  // There is one slice per round, so latency and transfer count n - 1 times.
  EXPECT_NEAR(estimate(Collective::all_gather, "ring", 8, 100000, simple()), 7 * (2 + 100), 1e-6);
  // An all_reduce has twice as many rounds. Each round moves an eighth of the buffer.
  EXPECT_NEAR(estimate(Collective::all_reduce, "ring", 8, 8 * 64 * 1000, simple()), 14 * (2 + 64),
              1e-6);
}

TEST(Estimate, OverlapsTheSlicesOfAChain) {
  CostModel model = simple();
  model.slice_bytes = 10000;
  // S slices over n - 1 hops: each hop after the first adds one slice and one latency.
  for (const std::uint64_t slices : {1, 4, 16, 17, 1000}) {
    const double expected = 10.0 * static_cast<double>(slices + 6) + 7 * 2;
    EXPECT_NEAR(estimate(Collective::broadcast, "ring", 8, slices * 10000, model), expected,
                1e-3 * expected)
        << slices << " slices";
  }
}

TEST(Estimate, SharesAHostsPortsAmongItsRanks) {
  CostModel model = simple();
  model.host = {0, 0, 0, 0, 1, 1, 1, 1};
  // Each of 4 ranks sends 4 blocks through the same port, so 16 blocks are sent in sequence.
  const double time = estimate(Collective::all_to_all, "direct", 8, 10000, model);
  EXPECT_NEAR(time, 16 * 20 + 20, 1);
}

TEST(Estimate, LetsRanksThatShareACoreTakeTurns) {
  const auto time_on = [](std::uint32_t cores, double switch_us) {
    CostModel model = simple();
    model.machine_cores = {cores};
    model.switch_us = switch_us;
    return estimate(Collective::all_to_all, "direct", 4, 10000, model);
  };
  EXPECT_NEAR(time_on(0, 5), 3 * 10 + 2, 1e-6);
  EXPECT_EQ(time_on(4, 5), time_on(0, 5)) << "no ranks share a core";
  // Each block is written and read. One core does this for all of its ranks.
  EXPECT_NEAR(time_on(2, 0), 2 * 2 * 3 * 10 + 2, 1e-6);
  EXPECT_NEAR(time_on(1, 0), 2 * 4 * 3 * 10 + 2, 1e-6);
  EXPECT_GE(time_on(2, 5), time_on(2, 0) + 5);
}

TEST(Estimate, GoesFromRankToRankWhereTheyShareACore) {
  // Returns how often a core switches to another of its ranks. Reading needs no switch.
  const auto switches = [](std::string_view algorithm, std::uint32_t size, std::uint32_t root,
                           std::uint32_t cores) {
    const auto time = [&](double switch_us) {
      CostModel model = simple();
      model.machine_cores = {cores};
      model.switch_us = switch_us;
      const auto ranks = model::plan_all(*find_planner(Collective::broadcast, algorithm),
                                         {Collective::broadcast, size, root});
      return estimate_us(ranks, {.count = 8}, model);
    };
    return (time(5) - time(0)) / 5;
  };
  EXPECT_NEAR(switches("binomial", 4, 0, 1), 2, 1e-6) << "0 by 1 to 2";
  EXPECT_NEAR(switches("binomial", 4, 2, 1), 2, 1e-6) << "2 by 3 to 0";
  EXPECT_NEAR(switches("ring", 4, 3, 1), 2, 1e-6) << "switches from 3 to 0 and from 0 to 1";
  EXPECT_NEAR(switches("ring", 5, 4, 2), 2, 1e-6)
      << "switches from 4 to 0 and from 0 to 2; 1 is on the other core";
}

TEST(Estimate, KeepsARankToItsOwnNics) {
  CostModel model = simple();
  model.local = {2, 100};
  model.remote = {20, 1};
  model.host = {0, 0, 1, 1};
  model.network = {{.port = model.host, .rate_GBps = {4, 4}}};
  // One megabyte between two ranks moves at the rate of a rank's own NIC.
  const auto two =
      model::plan_all(*find_planner(Collective::broadcast, "ring"), {Collective::broadcast, 2, 0});
  model.slice_bytes = 1 << 30;
  CostModel pair = model;
  pair.host = {0, 1};
  pair.network[0].port = pair.host;
  EXPECT_NEAR(estimate_us(two, {.count = 1000000}, pair), 1020, 1);
  pair.remote.bandwidth_GBps = 4;
  EXPECT_NEAR(estimate_us(two, {.count = 1000000}, pair), 270, 1);
  // On each rail, several slices move at once, and no slice waits for the NIC of another rail.
  const auto gather = model::plan_all(*find_planner(Collective::all_gather, "hierarchical_ring"),
                                      {Collective::all_gather, 4, 0, 2});
  CostModel sliced = model;
  sliced.slice_bytes = 10000;
  EXPECT_NEAR(estimate_us(gather, {.count = 1000000}, sliced), 1030, 30);
  // Two rails together have twice the bandwidth of one rail, so the two-level algorithm is faster
  // than the one-level one.
  const auto hierarchical =
      model::plan_all(*find_planner(Collective::all_reduce, "hierarchical_ring"),
                      {Collective::all_reduce, 4, 0, 2});
  const auto flat = model::plan_all(*find_planner(Collective::all_reduce, "ring"),
                                    {Collective::all_reduce, 4, 0});
  EXPECT_LT(1.3 * estimate_us(hierarchical, {.count = 64 * kMiB}, model),
            estimate_us(flat, {.count = 64 * kMiB}, model));
}

TEST(Estimate, ChargesReductionsCopiesAndDispatch) {
  CostModel model = simple();
  const double free = estimate(Collective::reduce, "binomial", 2, 10000, model);
  model.compute.reduce_GBps = 0.5;
  EXPECT_NEAR(estimate(Collective::reduce, "binomial", 2, 10000, model), free + 20, 1e-6);
  model = simple();
  model.compute.copy_GBps = 0.1;
  EXPECT_NEAR(estimate(Collective::all_gather, "ring", 2, 10000, model), 100, 1e-6);
  model = simple();
  model.exchange_step_us = 1;
  EXPECT_NEAR(estimate(Collective::broadcast, "ring", 2, 10000, model), 12 + 1, 1e-6);
  // Three sources are read in one pass with one result. This costs 4/3 of a reduction of two
  // sources.
  model = simple();
  model.compute.reduce_GBps = 0.5;
  const double two = estimate(Collective::reduce_scatter, "direct", 2, 10000, model) - 12;
  EXPECT_NEAR(two, 20, 1e-6);
  const double three = estimate(Collective::reduce_scatter, "direct", 3, 10000, model) - 22;
  EXPECT_NEAR(three, 20 * 4 / 3.0, 1e-6);
}

TEST(Estimate, TakesAnExchangeForWhatItIs) {
  CostModel model = simple();
  model.step_us = 100;
  const auto all_reduce = [&](std::string_view name, std::uint64_t bytes) {
    return estimate(Collective::all_reduce, name, 4, bytes, model);
  };
  EXPECT_LT(all_reduce("one_shot", 8), 100) << "one round";
  EXPECT_GT(all_reduce("two_shot", 8), 100) << "two";
  EXPECT_GT(all_reduce("recursive_doubling", 8), 100) << "two";
  model.slice_bytes = 64 * kKiB;
  EXPECT_LT(all_reduce("one_shot", 64 * kKiB), 1000);
  EXPECT_GT(all_reduce("one_shot", 65 * kKiB), 100) << "two slices";
  EXPECT_LT(estimate(Collective::broadcast, "direct", 4, 8, model), 100);
  EXPECT_GT(estimate(Collective::broadcast, "binomial", 4, 8, model), 100);
}

TEST(Estimate, WritesWhatSeveralReadersGetOnce) {
  CostModel model = simple();
  // The root's port is occupied once. The port of each reader is occupied for the same time.
  EXPECT_NEAR(estimate(Collective::broadcast, "direct", 5, 10000, model), 2 + 10, 1e-6);
  // Each rank on another host needs a separate message.
  model.host = {0, 1, 2, 3, 4};
  EXPECT_NEAR(estimate(Collective::broadcast, "direct", 5, 10000, model), 20 + 4 * 20, 1e-6);
}

TEST(Estimate, LetsEmptyChunksCostNothing) {
  EXPECT_EQ(estimate(Collective::all_reduce, "ring", 8, 0, simple()), 0);
  EXPECT_NEAR(estimate(Collective::barrier, "dissemination", 8, 0, simple()), 3 * 2, 1e-6);
}

TEST(Estimate, KnowsMappedMemory) {
  std::vector<Schedule> ranks;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    ranks.push_back(model::read_scratch({Collective::all_reduce, 4, 0}, rank));
  }
  const double time = estimate_us(ranks, {.count = 10000}, simple());
  EXPECT_NEAR(time, 2 + 3 * (2 + 10) + 2, 1) << "a signal, three remote reads, a signal";
}

TEST(Estimate, IsTheSameTwice) {
  CostModel model = simple();
  model.host = {0, 0, 0, 1, 1, 1, 2};
  for (const Planner& planner : planners()) {
    const double first = estimate(planner.collective, planner.name, 7, 3 * kMiB, model);
    EXPECT_EQ(estimate(planner.collective, planner.name, 7, 3 * kMiB, model), first)
        << planner.name;
    EXPECT_TRUE(std::isfinite(first) && first > 0) << planner.name;
  }
}

Choice choose(const CostModel& model,
              const Shape& shape,
              std::uint64_t bytes,
              std::string_view forced = {}) {
  Chooser chooser(model);
  const auto choice = chooser.choose(shape, bytes, forced);
  EXPECT_TRUE(choice.is_ok()) << choice.status().to_string();
  return *choice;
}

TEST(Choose, FollowsTheConstants) {
  const Shape shape{Collective::all_reduce, 8, 0};
  CostModel slow_start = simple();
  slow_start.local = {100, 10};
  CostModel slow_wire = simple();
  slow_wire.local = {0.1, 0.1};
  const Choice latency = choose(slow_start, shape, 64 * kKiB);
  const Choice bandwidth = choose(slow_wire, shape, 64 * kKiB);
  EXPECT_NE(latency.planner, bandwidth.planner);
  EXPECT_THAT(latency.reason, HasSubstr("fewer latencies"));
  EXPECT_THAT(bandwidth.reason, HasSubstr("moves the data faster"));
  EXPECT_LE(latency.predicted_us, latency.runner_up_us);
}

TEST(Choose, PrefersFewRoundsForShortAndFewBytesForLongMessages) {
  const Shape shape{Collective::all_gather, 16, 0};
  CostModel model = simple();
  for (std::uint32_t rank = 0; rank < 16; ++rank) model.host.push_back(rank / 4);
  // The hierarchical ring moves fewer bytes between hosts than a ring, in fewer rounds.
  EXPECT_EQ(choose(model, {Collective::all_reduce, 16, 0}, 64 * kMiB).planner->name,
            "hierarchical_ring");
  EXPECT_NE(choose(model, {Collective::all_reduce, 16, 0}, 8).planner->name, "hierarchical_ring");
  EXPECT_EQ(choose(model, shape, 64 * kMiB).planner->name, "hierarchical_ring");
  EXPECT_EQ(choose(model, {Collective::reduce_scatter, 16, 0}, 64 * kMiB).planner->name,
            "hierarchical_ring");
  EXPECT_NE(choose(model, shape, 8).planner->name, "hierarchical_ring");
}

TEST(Choose, HasFewTurnsWhereRanksShareCores) {
  const auto chosen = [](std::uint32_t cores) {
    CostModel model = assumed_costs();
    model.slice_bytes = 64 * kKiB;
    model.machine_cores = {cores};
    Chooser chooser(model);
    return std::string(
        chooser.choose({Collective::reduce_scatter, 4, 0}, 256 * kKiB)->planner->name);
  };
  EXPECT_EQ(chosen(0), "ring");
  EXPECT_EQ(chosen(2), "direct") << "a ring switches between the ranks for every slice";
}

TEST(Choose, HasOneRoundOfTurnsForSmallCallsWhereRanksShareCores) {
  for (const std::uint32_t ranks : {4U, 8U}) {
    for (const double alpha_us : {0.2, 1.0, 4.0, 10.0}) {
      CostModel model = assumed_costs();
      model.local.alpha_us = alpha_us;
      model.slice_bytes = 64 * kKiB;
      model.machine_cores = {2};
      Chooser chooser(model);
      EXPECT_EQ(chooser.choose({Collective::all_reduce, ranks, 0}, 8)->planner->name, "one_shot")
          << ranks << " ranks, " << alpha_us << " us";
    }
  }
}

// The scratch of Rabenseifner's algorithm grows with the message, so it is chosen only for small
// messages.
TEST(Choose, LeavesWhatNeedsMuchMemoryToSmallMessages) {
  CostModel quick = simple();
  for (const Planner& planner : planners()) {
    for (const std::uint32_t ranks : {2U, 3U, 5U, 6U, 8U, 13U}) {
      const Shape shape{planner.collective, ranks, 0};
      const std::uint64_t bytes = 512 * kMiB;
      const Choice choice = choose(quick, shape, bytes);
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        const Schedule schedule = choice.planner->plan(choice.shape, rank);
        EXPECT_LE(scratch_beyond_rings(schedule, {.count = bytes}), 64 * kMiB)
            << choice.planner->name << ", " << ranks << " ranks";
      }
    }
  }
}

TEST(Choose, SaysThatMemoryDecided) {
  const auto plan = [](const char* of) { return *find_planner(Collective::all_reduce, of); };
  const Planner both[] = {plan("rabenseifner"), plan("ring")};
  CostModel model = simple();
  model.local = {20'000, 10};
  Chooser chooser(model, both);
  const Shape shape{Collective::all_reduce, 5, 0};
  EXPECT_EQ(chooser.choose(shape, kMiB)->planner->name, "rabenseifner");
  const auto large = chooser.choose(shape, 64 * kMiB);
  EXPECT_EQ(large->planner->name, "ring");
  EXPECT_THAT(large->reason, HasSubstr("needs little memory: rabenseifner is predicted"));
  EXPECT_EQ(chooser.choose(shape, 64 * kMiB, "rabenseifner")->planner->name, "rabenseifner");
}

// The ranks of a pairwise exchange are in the same round in a simulation, but not in a network.
TEST(Choose, SendsToAllAtOnceBetweenManyHosts) {
  for (const std::uint32_t hosts : {5U, 8U, 16U}) {
    for (const double rate : {0.025, 0.12, 1.2}) {
      CostModel model = assumed_costs();
      model.remote = {0.1, rate};
      model.remote_send_us = 5;
      model.remote_core_GBps = 0.7;
      for (std::uint32_t rank = 0; rank < hosts; ++rank) model.host.push_back(rank);
      model.machine.assign(hosts, 0);
      model.machine_cores = {2};
      const Choice choice = choose(model, {Collective::all_to_all, hosts, 0}, 2 * kMiB);
      EXPECT_EQ(choice.planner->name, "direct") << hosts << ", " << rate << ": " << choice.reason;
    }
  }
}

TEST(Choose, ObeysAName) {
  const Shape shape{Collective::all_reduce, 8, 0};
  const Choice choice = choose(simple(), shape, 8, "ring");
  EXPECT_EQ(choice.planner, find_planner(Collective::all_reduce, "ring"));
  EXPECT_NE(choice.runner_up, choice.planner);
  EXPECT_GT(choice.predicted_us, choice.runner_up_us);
  EXPECT_THAT(choice.reason, HasSubstr("forced by name"));
  EXPECT_THAT(choice.reason, HasSubstr(std::string(choice.runner_up->name)));
}

TEST(Choose, NamesWhatThereIsWhenTheNameIsUnknown) {
  Chooser chooser(simple());
  const auto choice = chooser.choose({Collective::all_gather, 8, 0}, 8, "rnig");
  EXPECT_THAT(choice, fails_as(Code::invalid_argument, "'rnig'", "bruck", "ring"));
}

TEST(Choose, ExplainsWhereThereIsNoChoice) {
  EXPECT_THAT(choose(simple(), {Collective::all_reduce, 1, 0}, 8).reason, HasSubstr("one rank"));
}

TEST(Choose, SaysThatAnAlgorithmIsTheOnlyOne) {
  Chooser chooser(simple(), std::span(find_planner(Collective::all_reduce, "ring"), 1));
  const auto choice = value_of(chooser.choose({Collective::all_reduce, 8, 0}, 8));
  EXPECT_EQ(choice.planner, find_planner(Collective::all_reduce, "ring"));
  EXPECT_EQ(choice.runner_up, nullptr);
  EXPECT_EQ(choice.reason, "the only algorithm for all_reduce");
}

TEST(Choose, DependsOnTheModelAloneAndNotOnWhatWasChosenBefore) {
  Chooser upwards(simple());
  Chooser downwards(simple());
  const Shape shape{Collective::all_reduce, 6, 0};
  std::vector<std::string> first, second;
  for (int bits = 0; bits <= 26; ++bits) {
    first.push_back(std::string(upwards.choose(shape, std::uint64_t{1} << bits)->planner->name));
    second.insert(
        second.begin(),
        std::string(downwards.choose(shape, std::uint64_t{1} << (26 - bits))->planner->name));
  }
  EXPECT_EQ(first, second);
}

TEST(Choose, TreatsASizeClassAlike) {
  Chooser chooser(simple());
  const Shape shape{Collective::broadcast, 6, 2};
  const auto low = chooser.choose(shape, 64 * kKiB);
  const auto high = chooser.choose(shape, 128 * kKiB - 1);
  EXPECT_EQ(low->planner, high->planner);
  EXPECT_EQ(low->predicted_us, high->predicted_us);
}

TEST(Choose, WorksForEveryCollectiveAndRoot) {
  Chooser chooser(simple());
  for (std::size_t i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    for (const std::uint32_t root : model::roots(collective, 5)) {
      for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, kMiB}) {
        const auto choice = value_of(chooser.choose({collective, 5, root}, bytes));
        EXPECT_EQ(choice.planner->collective, collective);
        EXPECT_TRUE(std::isfinite(choice.predicted_us));
        EXPECT_FALSE(choice.reason.empty());
      }
    }
  }
}

TEST(Choose, ExtrapolatesToManyRanks) {
  // A ring of 192 ranks has too many steps to be simulated in choose(). So its time is
  // extrapolated, and must still be close to the exact estimate.
  CostModel model = simple();
  for (std::uint32_t rank = 0; rank < 192; ++rank) model.host.push_back(rank / 8);
  for (const std::uint64_t bytes : {8 * kKiB, 64 * kMiB}) {
    const double exact = estimate(Collective::all_reduce, "ring", 192, bytes, model);
    const Choice choice = choose(model, {Collective::all_reduce, 192, 0}, bytes, "ring");
    EXPECT_THAT(choice.predicted_us, DoubleNear(exact, 0.1 * exact)) << bytes;
  }
}

void expect_sensible_choice(const CostModel& model, std::uint64_t bytes, const std::string& what) {
  const auto ranks = static_cast<std::uint32_t>(model.host.size());
  const Choice choice = choose(model, {Collective::all_reduce, ranks, 0}, bytes);
  EXPECT_GE(choice.predicted_us, 20) << "less than a message between hosts takes";
  std::vector<Schedule> plans;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) plans.push_back(choice.plan(rank));
  const double exact = estimate_us(plans, {.count = bytes}, model);
  EXPECT_LT(choice.predicted_us, 2 * exact) << choice.planner->name << ", " << what;
  EXPECT_GT(choice.predicted_us, exact / 2) << choice.planner->name << ", " << what;
}

// All these plans have more steps than choose() simulates.
TEST(Choose, SeesTheNetworkBetweenHostsOfManyRanks) {
  for (const auto& [hosts, per_host] : {std::pair(2U, 64U), {2U, 112U}, {8U, 64U}, {3U, 50U}}) {
    CostModel model = simple();
    for (std::uint32_t rank = 0; rank < hosts * per_host; ++rank) {
      model.host.push_back(rank / per_host);
    }
    const std::string what = std::to_string(hosts) + " hosts of " + std::to_string(per_host);
    for (const std::uint64_t bytes : {kKiB, kMiB}) expect_sensible_choice(model, bytes, what);
  }
}

TEST(Choose, SeesTheNetworkBetweenHostsThatAreNotAlike) {
  CostModel uneven = simple(), dealt = simple();
  for (std::uint32_t rank = 0; rank < 181; ++rank) {
    uneven.host.push_back(rank < 90 ? 0 : 1);
    dealt.host.push_back(rank % 2);
  }
  for (const std::uint64_t bytes : {kKiB, kMiB}) {
    expect_sensible_choice(uneven, bytes, "90 and 91 ranks");
    expect_sensible_choice(dealt, bytes, "in turn");
  }
}

}  // namespace
}  // namespace xylem::collectives
