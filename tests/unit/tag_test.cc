// SPDX-License-Identifier: Apache-2.0
//
// Tags of collectives: different calls have different tags, except with a small probability.
#include "xylem/execution/tag.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>

namespace xylem::runtime {

using execution::collective_tag;
using execution::group_tag;
using execution::kGroupMask;
using execution::message_tag;
using execution::TagKind;
namespace {

TEST(CollectiveTag, CallsWhoseLowerBitsAgreeDifferInTheCheck) {
  // There are so many fingerprints that most of them could not be distinguished by 16 bits.
  constexpr std::uint64_t kCalls = 1 << 20;
  const auto message = message_tag(group_tag(TagKind::collective, 1), 2, 3, 4);
  std::set<std::uint32_t> checks;
  std::uint64_t meet_in_lower = 0, meet_in_all = 0;
  const auto wanted = collective_tag(message, 9, mix(0), 64);
  for (std::uint64_t call = 1; call <= kCalls; ++call) {
    const auto tag = collective_tag(message, 9, mix(call), 64);
    meet_in_lower += static_cast<std::uint64_t>(tag) == static_cast<std::uint64_t>(wanted) ? 1 : 0;
    meet_in_all += tag == wanted ? 1 : 0;
    checks.insert(static_cast<std::uint32_t>(tag >> transport::kNameBits));
  }
  EXPECT_GT(meet_in_lower, 4U);
  EXPECT_EQ(meet_in_all, 0U);
  EXPECT_LT(*checks.rbegin(), 1U << transport::kCheckBits);
  EXPECT_GT(checks.size(), kCalls / 2);
}

TEST(CollectiveTag, AGroupsMaskLeavesTheCheckOut) {
  const auto tag =
      collective_tag(message_tag(group_tag(TagKind::collective, 5), 2, 3, 4), 9, 77, 64);
  EXPECT_TRUE((tag & kGroupMask) == group_tag(TagKind::collective, 5));
}

}  // namespace
}  // namespace xylem::runtime
