// SPDX-License-Identifier: Apache-2.0
//
// Programs drawn from seeds that mix all calls, by ranks that are threads: what the thread
// sanitizer sees of them. As processes they are the tests mixed_*.
#include "mixed/rank.h"
#include "support/ranks.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <tuple>

namespace xylem::test {
namespace {

using Case = std::tuple<const char*, std::uint32_t, const char*>;

class MixedThreads : public testing::TestWithParam<Case> {};

TEST_P(MixedThreads, EveryElementIsRightAndErrorsAreThoseOfTheFault) {
  const auto& [transport, ranks, fault] = GetParam();
  // Faults take their time.
  const std::uint64_t programs = *fault == '\0' ? 4 : 1;
  for (std::uint64_t seed = 1; seed <= programs; ++seed) {
    RankOptions options;
    options.size = ranks;
    options.transport = transport;
    options.seed = seed;
    options.environment["XYLEM_TIMEOUT"] = "60s";
    run_ranks(options, [&](Runtime& runtime, MemoryHub&) {
      mixed::Setting setting;
      setting.seed = 1000 * seed + ranks;
      setting.calls = 80;
      setting.fault = fault;
      setting.victim = ranks / 2;
      EXPECT_EQ(mixed::Rank(runtime, setting).run(), "") << "rank " << runtime.rank();
    });
  }
}

std::string label(const testing::TestParamInfo<Case>& row) {
  const auto& [transport, ranks, fault] = row.param;
  return std::string(transport) + "_" + std::to_string(ranks) + "_" +
         (*fault == '\0' ? "none" : fault);
}

INSTANTIATE_TEST_SUITE_P(WithoutFaults,
                         MixedThreads,
                         testing::Combine(testing::Values("loopback", "shm", "tcp"),
                                          testing::Values(1U, 2U, 5U),
                                          testing::Values("")),
                         label);
INSTANTIATE_TEST_SUITE_P(WithFaults,
                         MixedThreads,
                         testing::Combine(testing::Values("loopback", "shm", "tcp"),
                                          testing::Values(3U),
                                          testing::Values("abort", "mismatch", "leave")),
                         label);

}  // namespace
}  // namespace xylem::test
