// SPDX-License-Identifier: Apache-2.0
//
// The CPUs that `xylem run --bind` assigns to ranks.
#include "run/binding.h"

#include "support/outcome.h"
#include "xylem/topology/readers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace xylem::tools {
namespace {

using testing::ElementsAre;
using topology::CpuSet;

topology::Topology machine(const std::string& description) {
  return *topology::read_synthetic(description, "test");
}

std::vector<std::string> bound(const topology::Topology& topology,
                               const std::string& allowed,
                               std::uint32_t ranks) {
  const auto sets = bind_ranks(topology, *CpuSet::parse(allowed), ranks);
  EXPECT_TRUE(sets.is_ok()) << sets.status().to_string();
  std::vector<std::string> texts;
  if (!sets) return texts;
  for (const CpuSet& cpus : *sets) texts.push_back(cpus.to_string());
  return texts;
}

TEST(Binding, SharesOutWhatMayBeUsed) {
  const auto two_packages = machine("2 packages, 4 cores/package");
  EXPECT_THAT(bound(two_packages, "0-7", 2), ElementsAre("0-3", "4-7"));
  EXPECT_THAT(bound(two_packages, "0-7", 4), ElementsAre("0-1", "2-3", "4-5", "6-7"));
  // A restricted set of CPUs, as in a container or under taskset.
  EXPECT_THAT(bound(two_packages, "2-5", 2), ElementsAre("2-3", "4-5"));
  EXPECT_THAT(bound(two_packages, "0-1", 2), ElementsAre("0", "1"));
}

TEST(Binding, OfMoreRanksThanCpusSharesThem) {
  EXPECT_THAT(bound(machine("1 package, 2 cores/package"), "0-1", 3),
              ElementsAre("0-1", "0-1", "0-1"));
}

TEST(Binding, SaysWhereNothingIsNear) {
  const auto sets = bind_ranks(machine("1 package, 2 cores/package"), *CpuSet::parse("8-9"), 2);
  EXPECT_THAT(sets, fails_as(Code::unsupported, "8-9"));
}

}  // namespace
}  // namespace xylem::tools
