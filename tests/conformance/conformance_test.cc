// SPDX-License-Identifier: Apache-2.0
//
// Runs every operation with every registered algorithm, forced by name. Loopback runs all
// combinations of types, reductions, counts, roots and placement (under the thread sanitizer a
// sample). Shared memory, TCP and UCX run a sample, and the test checks which transport carried the
// bytes.
#include "conformance/run_case.h"
#include "support/ranks.h"
#include "support/sanitizer.h"
#include "xylem/collectives/planner.h"

#include <gtest/gtest.h>

#include <atomic>

namespace xylem::test {
namespace {

constexpr std::uint32_t kRanks[] = {1, 2, 3, 5, 8};

RankOptions options_for(const collectives::Planner& planner, std::uint32_t ranks) {
  RankOptions options{.size = ranks};
  options.environment["XYLEM_ALGORITHM"] =
      std::string(name(planner.collective)) + "=" + std::string(planner.name);
  // Even small messages have several slices.
  options.environment["XYLEM_SLICE"] = "1K";
  options.environment["XYLEM_WINDOW"] = "3";
  return options;
}

/// The host of each rank, for planners that use hosts: hosts of 2 ranks if there are 6 ranks, and
/// of 4 ranks if there are 8. Empty for other planners and sizes.
std::vector<std::uint32_t> hosts_for(const collectives::Planner& planner, std::uint32_t ranks) {
  if (!planner.takes_hosts || ranks < 6) return {};
  std::vector<std::uint32_t> hosts;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) hosts.push_back(rank / (ranks == 6 ? 2 : 4));
  return hosts;
}

/// True if the plan accesses the memory of other ranks. No transport of this test can run it.
bool needs_mapped_memory(const collectives::Planner& planner) {
  const auto schedule = planner.plan({planner.collective, 3, 0}, 0);
  for (const auto& operand : schedule.operands) {
    if (operand.rank != 0) return true;
  }
  return false;
}

class Conformance : public testing::TestWithParam<const collectives::Planner*> {};

std::string planner_name(const testing::TestParamInfo<const collectives::Planner*>& info) {
  return std::string(name(info.param->collective)) + "_" + std::string(info.param->name);
}

TEST_P(Conformance, FullProductOnLoopback) {
  const auto& planner = *GetParam();
  if (needs_mapped_memory(planner)) GTEST_SKIP() << "needs a transport that maps peers' memory";
  std::atomic<std::uint64_t> executed{0};
  std::atomic<int> failures{0};
  for (const std::uint32_t ranks : {1U, 2U, 3U, 5U, 6U, 8U}) {
    // 6 ranks are three hosts of two ranks, which matters only to planners that use hosts.
    if (ranks == 6 && !planner.takes_hosts) continue;
    const auto cases = kHasThreadSanitizer ? sample(planner.collective, ranks, 100)
                                           : full_product(planner.collective, ranks);
    RankOptions options = options_for(planner, ranks);
    options.hosts = hosts_for(planner, ranks);
    options.seed = 17 * ranks + 1;
    options.eager_bytes = ranks % 2 == 0 ? 0 : 512;
    run_ranks(options, [&](const Communicator& world) {
      for (const auto& one : cases) {
        const std::string wrong = run_case(world, one);
        if (!wrong.empty() && failures.fetch_add(1) < 5)
          ADD_FAILURE() << planner.name << ", seed " << options.seed << ": " << wrong;
        if (!wrong.empty() && failures > 100) return;
        if (world.rank() == 0) executed.fetch_add(1);
      }
    });
  }
  EXPECT_GT(executed, 0U) << "no case executed " << planner.name;
  RecordProperty("cases", static_cast<int>(executed));
  std::printf("[    CASES ] %s %s: %llu\n", std::string(name(planner.collective)).c_str(),
              std::string(planner.name).c_str(), static_cast<unsigned long long>(executed));
}

void sample_over(const collectives::Planner& planner,
                 const std::string& transport,
                 std::size_t most_cases) {
  if (needs_mapped_memory(planner)) GTEST_SKIP() << "needs a transport that maps peers' memory";
  std::atomic<std::uint64_t> executed{0};
  for (const std::uint32_t ranks : kRanks) {
    const auto cases = sample(planner.collective, ranks, most_cases);
    RankOptions options = options_for(planner, ranks);
    options.transport = transport;
    // With odd numbers of ranks, the shared memory is so small that rings and slots are often full.
    if (ranks % 2 == 1) options.environment["XYLEM_SHARED_MEMORY"] = "176K";
    run_ranks(options, [&](Runtime& runtime, MemoryHub&) {
      const auto world = runtime.world();
      for (const auto& one : cases) {
        EXPECT_EQ(run_case(world, one), "") << planner.name << " over " << transport;
        if (runtime.rank() == 0) executed.fetch_add(1);
      }
      for (const auto& path : runtime.paths()) {
        if (path.rank == runtime.rank()) continue;
        EXPECT_EQ(path.transport, transport);
        for (const auto& lane : path.lanes) {
          EXPECT_EQ(lane.rfind("tcp", 0) == 0, transport != "shm") << "bytes went over " << lane;
        }
      }
      EXPECT_TRUE(world.barrier().wait().is_ok());
    });
  }
  EXPECT_GT(executed, 0U);
}

TEST_P(Conformance, SampleOverSharedMemory) {
  sample_over(*GetParam(), "shm", kHasThreadSanitizer ? 100 : 300);
}
TEST_P(Conformance, SampleOverTcp) { sample_over(*GetParam(), "tcp", 24); }
TEST_P(Conformance, SampleOverUcxTcp) { sample_over(*GetParam(), "ucx-tcp", 8); }

INSTANTIATE_TEST_SUITE_P(Planners, Conformance, testing::ValuesIn(all_planners()), planner_name);

}  // namespace
}  // namespace xylem::test
