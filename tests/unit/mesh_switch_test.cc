// SPDX-License-Identifier: Apache-2.0
#include "groups/mesh_switch.h"

#include <gtest/gtest.h>

#include <optional>

namespace xylem::runtime {
namespace {

TEST(MeshSwitch, LetsCallsWaitOnlyIfTheyAreAheadOfTheProposal) {
  MeshSwitch at;
  EXPECT_FALSE(at.is_counting());
  at.begin();
  EXPECT_TRUE(at.is_counting());
  EXPECT_EQ(at.number_call(), 0);
  EXPECT_EQ(at.is_on_mesh(1'000'000), std::optional(false)) << "before the proposal";
  EXPECT_EQ(at.propose(), 1 + MeshSwitch::kAhead);
  EXPECT_EQ(at.is_on_mesh(MeshSwitch::kAhead), std::optional(false));
  EXPECT_EQ(at.is_on_mesh(1 + MeshSwitch::kAhead), std::nullopt);
  at.decide(100);
  EXPECT_EQ(at.is_on_mesh(99), std::optional(false));
  EXPECT_EQ(at.is_on_mesh(100), std::optional(true));
}

TEST(MeshSwitch, KeepsTheFirstDecision) {
  MeshSwitch at;
  at.begin();
  at.decide(MeshSwitch::kNever);
  at.decide(0);
  EXPECT_EQ(at.is_on_mesh(1'000'000), std::optional(false));
}

}  // namespace
}  // namespace xylem::runtime
