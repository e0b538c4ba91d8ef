// SPDX-License-Identifier: Apache-2.0
//
// Arbitrary bytes as the facts that a rank sends about itself at start. They are refused, or
// encoding the decoded facts produces the same bytes. The facts agree with themselves, and a
// disagreement names the line that differs.
#include "wires/peer_facts.h"
#include "xylem/base/check.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace {

using namespace xylem;
using namespace xylem::runtime;

void check_disagreement(const PeerFacts& facts) {
  constexpr std::string_view kAdded = "XYLEM_FUZZ=1";
  PeerFacts other = facts;
  other.settings.append(facts.settings.empty() || facts.settings.ends_with('\n') ? "" : "\n");
  other.settings.append(kAdded).append("\n");
  for (const Status& status :
       {compare_settings(0, facts, 1, other), compare_settings(0, other, 1, facts)}) {
    XYLEM_CHECK(status.code() == Code::mismatch);
    XYLEM_CHECK(status.message().find(kAdded) != std::string_view::npos, status.message());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::uint32_t kRank = 3;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto facts = decode(kRank, bytes);
  if (!facts) {
    XYLEM_CHECK(facts.code() == Code::mismatch);
    XYLEM_CHECK(facts.status().message().starts_with("rank 3 sent facts"));
    return 0;
  }
  const auto again = encode(*facts);
  XYLEM_CHECK(std::ranges::equal(again, bytes), again.size(), size);
  const auto same = decode(kRank, again);
  XYLEM_CHECK(same.is_ok() && *same == *facts);
  XYLEM_CHECK(compare_settings(0, *facts, kRank, *same).is_ok());
  check_disagreement(*facts);
  return 0;
}
