// SPDX-License-Identifier: Apache-2.0
//
// Arbitrary text as schedules. Parsing returns an error, or a value that stays the same when it is
// written and parsed again. The verifier must return for every parsed schedule.
#include "xylem/base/check.h"
#include "xylem/collectives/text.h"
#include "xylem/collectives/verify.h"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace xylem::collectives;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // The text may contain schedules of several ranks in sequence, as golden files do.
  std::vector<Schedule> ranks;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t next = text.find("\nschedule ", begin + 1);
    const auto schedule = parse_schedule(text.substr(begin, next - begin));
    begin = next == std::string_view::npos ? text.size() : next;
    if (!schedule) {
      XYLEM_CHECK(schedule.status().message().starts_with("line "), schedule.status().to_string());
      continue;
    }
    const std::string printed = print(*schedule);
    const auto again = parse_schedule(printed);
    XYLEM_CHECK(again.is_ok() && *again == *schedule, printed);
    ranks.push_back(*schedule);
  }
  const xylem::Status outcome = verify(ranks);
  XYLEM_CHECK(outcome || outcome.code() == xylem::Code::bad_schedule, outcome.to_string());
  // Parses the text as a file of plans.
  const auto plans = parse_plans(text);
  if (!plans) {
    XYLEM_CHECK(plans.status().message().starts_with("line "), plans.status().to_string());
    return 0;
  }
  for (const auto& plan : *plans) {
    XYLEM_CHECK(!plan.empty() && plan.size() == plan.front().shape.ranks, print(plan.front()));
    (void)verify(plan);
  }
  return 0;
}
