// SPDX-License-Identifier: Apache-2.0
//
// `xylem plan` end to end: the chosen plan, its proof, its steps, and its errors.
#include "process/command.h"
#include "support/sanitizer.h"
#include "xylem/collectives/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace xylem {
namespace {

using test::Finished;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::chrono::seconds kLimit{60};

Finished plan(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {XYLEM_TEST_BIN "/xylem", "plan"});
  return test::run_command(arguments, {}, kLimit);
}

TEST(Plan, ChoosesProvesAndPrintsEveryCollective) {
  for (const std::uint32_t ranks : {1U, 2U, 3U, 5U, 8U}) {
    for (const char* name : {"all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter",
                             "all_to_all", "gather", "scatter", "barrier"}) {
      const Finished done = plan({name, "-n", std::to_string(ranks)});
      EXPECT_EQ(done.exit_status, 0) << name << done.err;
      EXPECT_THAT(done.out, HasSubstr("verified                 " + std::to_string(ranks)));
      const auto printed =
          collectives::parse_schedule(done.out.substr(done.out.find("\nschedule ") + 1));
      ASSERT_TRUE(printed.is_ok()) << printed.status().to_string();
      EXPECT_EQ(printed->shape.ranks, ranks);
    }
  }
}

TEST(Plan, TakesRanksAndBandwidthFromTheMachine) {
  const Finished done =
      plan({"all_reduce", "2 packages, 8 gpus, 1 nic/gpu 400 Gb/s, nvswitch", "--hosts", "4"});
  EXPECT_THAT(done.out, StartsWith("all_reduce of 1 MiB, 32 ranks on 4 hosts\n"));
  EXPECT_THAT(done.out, HasSubstr("450 GB/s (latency assumed, bandwidth of the GPU rings)"));
  EXPECT_THAT(done.out, HasSubstr("50 GB/s (latency assumed, bandwidth of the NICs of a rank; "
                                  "400 GB/s of a host)"));
}

TEST(Plan, ReckonsWithGpusWhereEachRankHasOne) {
  const std::string machine = "2 packages, 8 gpus, 1 nic/gpu 400 Gb/s, nvswitch";
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"all_reduce", machine, "--hosts", "4", "--bytes", "1G"});
    more.emplace_back("--no-steps");
    const Finished done = plan(std::move(more));
    EXPECT_EQ(done.exit_status, 0) << done.err;
    return done.out;
  };
  const std::string direct = with({});
  EXPECT_THAT(direct, HasSubstr("in memory of GPUs, sent directly over their links"));
  EXPECT_THAT(direct, HasSubstr("reductions 600 GB/s, copies 900 GB/s (by GPUs: 90 % of 2000 GB/s, "
                                "assumed: the model of the GPU is unknown)"));
  EXPECT_THAT(direct, HasSubstr("4 MiB (assumed for GPUs)"));
  EXPECT_THAT(direct, HasSubstr("\n  today                    "));
  EXPECT_THAT(direct, HasSubstr("in slices of 256 KiB, through pinned memory between hosts"));
  // Each host sends and receives 1.5 GiB over 400 GB/s, which takes 4.0 ms. Each GPU moves 1.75 GiB
  // over 450 GB/s, which takes 4.2 ms. These times overlap partly.
  std::smatch time;
  ASSERT_TRUE(std::regex_search(direct, time, std::regex("chosen +[a-z_]+, ([0-9.]+) ms")));
  EXPECT_GT(std::stod(time[1]), 4.2);
  EXPECT_LT(std::stod(time[1]), 8.5);

  const std::string staged = with({"--staged"});
  EXPECT_THAT(staged, HasSubstr("sent between hosts through pinned memory"));
  EXPECT_THAT(staged,
              HasSubstr("memory of the host 56.71 GB/s each way: 90 % of its share of PCIe"));
  EXPECT_THAT(staged, HasSubstr("256 KiB (the default of XYLEM_SLICE)"));
  const std::string host = with({"--device", "host", "--slice", "1M"});
  EXPECT_THAT(host, HasSubstr("in memory of the hosts\n"));
  EXPECT_THAT(host, HasSubstr("reductions 8 GB/s, copies 8 GB/s (assumed, by CPUs)"));
  EXPECT_THAT(host, HasSubstr("1 MiB (as given)"));
  EXPECT_THAT(host, testing::Not(HasSubstr("\n  today  ")));
}

TEST(Plan, SaysThatTheDriverForbidsWhatItReckonsWith) {
  std::vector<std::string> describe{XYLEM_TEST_BIN "/xylem", "topo", "--format", "json"};
  describe.emplace_back("2 gpus, nvlink pairs x2");
  const Finished machine = test::run_command(describe, {}, kLimit);
  std::string json = machine.out;
  json.insert(json.rfind("\"derived\""),
              R"("gpu_pairs": [{"a": 0, "b": 1, "access": "no_by_chipset"}], )");
  const std::string path = testing::TempDir() + "/no_peer_access.json";
  std::ofstream(path) << json;
  EXPECT_THAT(plan({"all_reduce", path}).out,
              HasSubstr("50 GB/s (latency assumed, bandwidth of the GPU rings; but the driver says "
                        "that some GPUs have no peer access)"));
}

TEST(Plan, TakesTheHostsMemoryWhereRanksShareGpus) {
  EXPECT_THAT(plan({"all_reduce", "2 gpus", "--ranks", "3"}).out, HasSubstr("memory of the hosts"));
  EXPECT_THAT(plan({"all_reduce", "2 gpus, xgmi pairs"}).out, HasSubstr("memory of the hosts"));
  EXPECT_THAT(plan({"all_reduce", "4 gpus", "--ranks", "3"}).out, HasSubstr("in memory of GPUs"));
}

TEST(Plan, SaysWhatDecidedAndWhatCameNext) {
  const Finished forced =
      plan({"all_reduce", "-n", "64", "--bytes", "8", "--algorithm", "ring", "--rank", "5"});
  EXPECT_THAT(forced.out, HasSubstr("because                  forced by name, where "));
  EXPECT_THAT(forced.out, HasSubstr("next                     "));
  EXPECT_THAT(forced.out, HasSubstr("\nschedule all_reduce ring rank 5 of 64"));
}

TEST(Plan, ProvesThousandsOfRanksBySymmetry) {
  const Finished ring = plan({"all_reduce", "8 gpus, 1 nic/gpu 400 Gb/s, nvswitch", "--hosts",
                              "256", "--algorithm", "hierarchical_ring", "--bytes", "1G"});
  EXPECT_EQ(ring.exit_status, 0) << ring.err;
  EXPECT_THAT(ring.out, HasSubstr("verified                 2048 ranks, 20961280 steps; every "
                                  "rank's compared with rank 0's by symmetry, which is proven"));
  EXPECT_THAT(ring.out, HasSubstr("peak memory"));
  const Finished tree = plan({"all_reduce", "8 gpus", "--hosts", "128", "--algorithm",
                              "hierarchical_tree", "--rank", "1023"});
  EXPECT_THAT(tree.out, HasSubstr("verified                 1024 ranks, "));
  EXPECT_THAT(tree.out,
              HasSubstr("\nschedule all_reduce hierarchical_tree rank 1023 of 1024 per_host 8"));
}

Finished sim(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {XYLEM_TEST_BIN "/xylem", "sim"});
  return test::run_command(arguments, {}, kLimit);
}

TEST(Sim, PredictsARangeOfSizesForMachinesThatNeedNotExist) {
  const Finished done = sim({"all_gather", "8 gpus, 1 nic/gpu 400 Gb/s, nvswitch", "--hosts", "16",
                             "--bytes", "4K-64M", "--factor", "128"});
  EXPECT_EQ(done.exit_status, 0) << done.err;
  EXPECT_THAT(done.out, StartsWith("all_gather, 128 ranks on 16 hosts\n"));
  EXPECT_THAT(done.out, testing::ContainsRegex("\n +4 KiB +bruck .* yes\n"));
  EXPECT_THAT(done.out, testing::ContainsRegex("\n +512 KiB .* yes\n"));
  EXPECT_THAT(done.out,
              testing::ContainsRegex("\n +64 MiB +hierarchical_ring .* 8 by symmetry +yes\n"));
}

// The proof of every rank's schedule must not take minutes or gigabytes.
TEST(Sim, OfTenThousandRanksIsQuickAndProved) {
  const Finished done = sim({"all_reduce", "8 gpus, 1 nic/gpu 400 Gb/s, nvswitch", "--hosts",
                             test::kHasSanitizer ? "125" : "1250", "--bytes", "1G"});
  EXPECT_EQ(done.exit_status, 0) << done.err;
  EXPECT_THAT(done.out,
              testing::ContainsRegex("\n +1 GiB +hierarchical_tree .* from [0-9]+ on +yes\n"));
}

TEST(Sim, ChoosesWhatCanBeProvedForEveryCollective) {
  for (const char* collective : {"all_reduce", "reduce", "broadcast", "all_gather",
                                 "reduce_scatter", "all_to_all", "gather", "scatter", "barrier"}) {
    for (const char* hosts : {"1", "8", "64"}) {
      if (test::kHasSanitizer && hosts == std::string_view("64")) continue;
      const Finished done = sim({collective, "8 gpus, 1 nic/gpu 400 Gb/s, nvswitch", "--hosts",
                                 hosts, "--bytes", "4K-1G", "--factor", "512", "--device", "host"});
      EXPECT_EQ(done.exit_status, 0) << done.err;
      EXPECT_THAT(done.out, testing::Not(testing::ContainsRegex(" (no|WRONG)\n")))
          << collective << " on " << hosts << " hosts";
    }
  }
}

TEST(Sim, RefusesWhatCannotBe) {
  EXPECT_THAT(sim({"all_reduce", "--bytes", "1G-1M"}).err, HasSubstr("such as 4K-1G"));
  EXPECT_THAT(sim({"all_reduce", "--bytes", "many"}).err, HasSubstr("such as 4K-1G"));
  EXPECT_THAT(sim({"broadcast", "-n", "4", "--root", "4"}).err, HasSubstr("ranks are 0 to 3"));
  EXPECT_THAT(sim({"all_reduce", "--factor", "1"}).err, HasSubstr("whole number from 2"));
  EXPECT_EQ(sim({"all_reduce", "nowhere.xml"}).exit_status, 2);
}

TEST(Plan, SaysWhatIsTooMuchToProve) {
  const Finished done = plan({"all_reduce", "-n", "8192", "--algorithm", "rabenseifner"});
  EXPECT_EQ(done.exit_status, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("verified                 no: the schedules of all ranks are too "
                                  "many to hold at once, and no symmetry"));
  // The proof covers all ranks, and does not depend on the rank whose steps are shown.
  for (const char* rank : {"0", "1"}) {
    EXPECT_THAT(plan({"gather", "-n", "2048", "--rank", rank}).out,
                HasSubstr("verified                 2048 ranks, "));
  }
}

TEST(Plan, DrawsWhoSendsToWhomAndWhen) {
  const Finished done = plan({"all_reduce", "2 gpus, 1 nic/gpu", "--hosts", "2", "--algorithm",
                              "hierarchical_ring", "--format", "svg"});
  EXPECT_EQ(done.exit_status, 0) << done.err;
  EXPECT_THAT(done.out, StartsWith("<svg "));
  EXPECT_THAT(done.out, HasSubstr("all_reduce of 1 MiB, 4 ranks on 2 hosts: hierarchical_ring"));
  EXPECT_THAT(done.out, HasSubstr("3 · host 1"));
  EXPECT_THAT(done.out, HasSubstr("<title>rank 0, step 6: send to rank 2"));
  EXPECT_THAT(done.out, testing::EndsWith("</svg>\n"));
  EXPECT_THAT(plan({"barrier", "-n", "1", "--format", "svg"}).out, StartsWith("<svg "));
  EXPECT_THAT(plan({"barrier", "-n", "65", "--format", "svg"}).err, HasSubstr("at most 64 are"));
}

TEST(Plan, IsDrawnInTheDocumentationAsItIs) {
  const std::string path = XYLEM_TEST_DATA "/../docs/pictures/plan.svg";
  std::ostringstream recorded;
  recorded << std::ifstream(path).rdbuf();
  const Finished done =
      plan({"all_reduce", "4 gpus, 1 nic/gpu 200 Gb/s, nvswitch", "--hosts", "2", "--bytes", "4M",
            "--algorithm", "hierarchical_tree", "--format", "svg"});
  if (done.out == recorded.str()) return;
  const std::string now = testing::TempDir() + "/plan.svg";
  std::ofstream(now) << done.out;
  ADD_FAILURE() << path << " differs from the drawn picture, which is now in " << now;
}

TEST(Plan, TakesSeveralMachinesAndTheNetworkBetween) {
  const Finished done =
      plan({"all_reduce", "4 gpus, 1 nic/gpu 400 Gb/s", "2 gpus, 1 nic/gpu 200 Gb/s", "--network",
            "oversubscription 2, latency 3 us", "--rank", "5"});
  EXPECT_EQ(done.exit_status, 0) << done.err;
  EXPECT_THAT(done.out, StartsWith("all_reduce of 1 MiB, 6 ranks on 2 hosts\n"));
  EXPECT_THAT(done.out,
              HasSubstr("3 us + 50 GB/s (latency as given, bandwidth of the NICs of a rank, of "
                        "some only 25 GB/s; 25 GB/s of a host)"));
  EXPECT_THAT(done.out, HasSubstr("  rail 1                   25 GB/s: rdma1\n"));
  EXPECT_THAT(done.out, HasSubstr("  rank 5                   host 1: GPU1, rdma1, NUMA node 0"));
  EXPECT_THAT(done.out, testing::Not(HasSubstr("rail 2")));
}

TEST(Plan, RefusesWhatCannotBe) {
  const auto message = [](std::vector<std::string> arguments) {
    const Finished done = plan(std::move(arguments));
    EXPECT_EQ(done.exit_status, 2) << done.out;
    return done.err;
  };
  EXPECT_EQ(message({"all_reduce", "-n", "4", "--root", "4"}),
            "xylem plan: --root 4: ranks are 0 to 3\n");
  EXPECT_THAT(message({"all_reduce", "-n", "2", "--hosts", "3"}), HasSubstr("at least one"));
  EXPECT_THAT(message({"all_reduce", "--algorithm", "star"}), HasSubstr("use one of"));
  EXPECT_THAT(message({"all_reduce", "2 gpus", "4 gpus", "--hosts", "3"}),
              HasSubstr("the 2 machines are repeated"));
  EXPECT_THAT(message({"all_reduce", "128 gpus", "--hosts", "1024"}),
              HasSubstr("131072 ranks: at most 65535"));
  EXPECT_THAT(message({"all_reduce", "--network", "fast"}), HasSubstr("say oversubscription"));
  EXPECT_EQ(
      message({"all_reduce", "2 gpus", "--ranks", "3", "--device", "cuda"}),
      "xylem plan: --device cuda: host 0 has 3 ranks and 2 GPUs, and each rank needs a GPU of "
      "NVIDIA; use --device host, or fewer ranks (--ranks)\n");
  EXPECT_THAT(message({"all_reduce", "1 packages", "--staged"}), HasSubstr("--staged: host 0 has"));
  EXPECT_THAT(message({"all_reduce", "2 gpus", "--staged", "--device", "host"}),
              HasSubstr("only memory of GPUs is staged"));
  EXPECT_THAT(message({"all_reduce", "--device", "gpu"}), HasSubstr("is none of host, cuda"));
  EXPECT_THAT(message({"all_reduce", "--slice", "0"}), HasSubstr("at least 1 byte"));
  EXPECT_THAT(message({"all_reduce", "none.xml"}), HasSubstr("none.xml: cannot read it"));
}

}  // namespace
}  // namespace xylem
