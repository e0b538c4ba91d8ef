// SPDX-License-Identifier: Apache-2.0
//
// Schedules as text: a schedule that is written and read is unchanged, and errors name the line.
#include "model/mapped_plans.h"
#include "model/plans.h"
#include "support/outcome.h"
#include "xylem/collectives/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace xylem::collectives {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(ScheduleText, RoundTripsEveryPlan) {
  for (const Planner& planner : planners()) {
    for (const std::uint32_t ranks : {1U, 2U, 3U, 7U, 8U}) {
      const std::uint32_t root = has_root(planner.collective) ? ranks / 2 : 0;
      for (const Shape& shape : model::shapes(planner, ranks, root)) {
        for (const Schedule& schedule : model::plan_all(planner, shape)) {
          const auto parsed = parse_schedule(print(schedule));
          ASSERT_TRUE(parsed.is_ok()) << parsed.status().to_string() << '\n' << print(schedule);
          ASSERT_EQ(*parsed, schedule) << print(schedule);
        }
      }
    }
  }
}

TEST(ScheduleText, RoundTripsMappedMemory) {
  for (auto* plan : {model::read_inputs, model::read_scratch, model::put_inputs}) {
    const Schedule schedule = plan({Collective::all_reduce, 3, 0}, 1);
    const auto parsed = value_of(parse_schedule(print(schedule)));
    EXPECT_EQ(parsed, schedule);
    EXPECT_THAT(print(schedule), HasSubstr("@2"));
  }
}

TEST(ScheduleText, ReadsAsInItsHeader) {
  constexpr std::string_view kText =
      "schedule all_reduce ring rank 0 of 2 root 0 blocks 2 channels 1\n"
      "scratch 0 1\n"
      "0: send ch0 peer 1 input[0]\n"
      "1: recv ch0 peer 1 scratch[0]\n"
      "2: reduce output[1] = input[1] + scratch[1] finish  after 1\n"
      "3: copy output[0..1] = input[0..1]@1  after 0 2\n"
      "4: put ch0 peer 1 output[1]@1 = input[1]\n"
      "5: signal ch0 peer 1  after 4\n"
      "6: wait ch0 peer 1 value 3\n";
  const auto schedule = value_of(parse_schedule(kText));
  EXPECT_EQ(print(schedule), kText);
  EXPECT_EQ(schedule.steps[3].chunk_count, 2U);
  EXPECT_EQ(schedule.operands[schedule.steps[3].first_source], (Operand{1, 0, Buffer::input}));
  EXPECT_TRUE(schedule.steps[2].finish);
  EXPECT_EQ(schedule.steps[6].value, 3U);
}

TEST(ScheduleText, AllowsCommentsEmptyLinesAndSpaces) {
  const auto schedule = value_of(parse_schedule(
      "# a plan\n\n  schedule  all_reduce x rank 0 of 1 root 0 blocks 1 channels 1\r\n\n"
      "0 : copy output [ 0 ] = input[0]\n# the end"));
  EXPECT_EQ(schedule.steps.size(), 1U);
}

TEST(ScheduleText, NamesTheLineAndTheRule) {
  const std::string header = "schedule all_reduce x rank 0 of 2 root 0 blocks 1 channels 1\n";
  struct Case {
    std::string text, line, rule;
  };
  const Case cases[] = {
      {"", "line 0", "no line 'schedule"},
      {"plan all_reduce", "line 1", "expected 'schedule', not 'plan all_reduce'"},
      {"schedule all_reducing x", "line 1", "unknown collective 'all_reducing'"},
      {"schedule all_reduce x rank -1", "line 1", "expected a number below 2^32, not '-1'"},
      {"schedule all_reduce x rank 4294967296", "line 1", "expected a number"},
      {"schedule all_reduce x rank 0 root 0", "line 1", "expected 'of'"},
      {header + "1: copy output[0] = input[0]", "line 2", "expected step 0, not 1"},
      {header + "0: jump ch0", "line 2", "unknown step 'jump'"},
      {header + "0: send peer 1 input[0]", "line 2", "expected a channel"},
      {header + "0: send ch16 peer 1 input[0]", "line 2", "ch0 to ch15"},
      {header + "0: send ch peer 1 input[0]", "line 2", "expected a channel"},
      {header + "0: send ch0 peer 1 throughput[0]", "line 2", "expected input, output or scratch"},
      {header + "0: send ch0 peer 1 input[0", "line 2", "expected ']', not 'the end of the line'"},
      {header + "0: send ch0 peer 1 input[3..2]", "line 2", "backwards"},
      {header + "0: send ch0 peer 1 input[0..4294967295]", "line 2", "too far"},
      {header + "0: copy output[0] input[0]", "line 2", "expected '='"},
      {header + "0: copy output[0] = input[0..1]", "line 2", "operands of 1 and of 2 chunks"},
      {header + "0: copy output[0] = input[0] + input[0]", "line 2",
       "expected the end of the line"},
      {header + "0: copy output[0] = input[0] after 0", "line 2", "comes after step 0"},
      {header + "0: copy output[0] = input[0] after", "line 2", "expected a number"},
      {header + "0: wait ch0 peer 1", "line 2", "expected 'value'"},
      {header + "scratch", "line 2", "expected a number"},
      {header + header, "line 2", "expected a number"},
  };
  for (const Case& c : cases) {
    const auto schedule = parse_schedule(c.text);
    ASSERT_FALSE(schedule.is_ok()) << c.text;
    EXPECT_EQ(schedule.code(), Code::bad_schedule);
    EXPECT_THAT(std::string(schedule.status().message()), StartsWith(c.line + ":")) << c.text;
    EXPECT_THAT(schedule, fails_with(c.rule)) << c.text;
  }
}

TEST(ScheduleText, BoundsWhatAStepCanHold) {
  std::string text =
      "schedule all_reduce x rank 0 of 2 root 0 blocks 1 channels 1\n0: reduce output[0] = "
      "input[0]";
  for (int i = 0; i < 65535; ++i) text += "+input[0]";
  EXPECT_THAT(parse_schedule(text), fails_with("too many sources"));
}

// ---- files of plans ----

std::string printed_plan(Collective collective, std::uint32_t ranks, std::string_view algorithm) {
  std::string text;
  for (std::uint32_t rank = ranks; rank-- > 0;)
    text += print(find_planner(collective, algorithm)->plan({collective, ranks}, rank)) + "\n";
  return text;
}

TEST(PlansAsText, HoldTheSchedulesOfAllRanksInAnyOrder) {
  const std::string text = "# mine\n\n" + printed_plan(Collective::all_reduce, 3, "ring") +
                           "# another\n" + printed_plan(Collective::all_gather, 2, "ring") +
                           printed_plan(Collective::all_reduce, 2, "ring");
  const auto plans = value_of(parse_plans(text));
  ASSERT_EQ(plans.size(), 3U);
  for (const auto& plan : plans) {
    ASSERT_EQ(plan.size(), plan.front().shape.ranks);
    for (std::uint32_t rank = 0; rank < plan.size(); ++rank) {
      const Shape& shape = plan[rank].shape;
      EXPECT_EQ(plan[rank], find_planner(shape.collective, "ring")->plan(shape, rank));
    }
  }
}

TEST(PlansAsText, AreRefusedWithTheLine) {
  const std::string ring = printed_plan(Collective::all_reduce, 2, "ring");
  const auto first = ring.substr(0, ring.find("\nschedule") + 1);
  const auto refusal = [](const std::string& text) {
    const auto plans = parse_plans(text);
    EXPECT_EQ(plans.code(), Code::bad_schedule) << text;
    return plans ? std::string() : std::string(plans.status().message());
  };
  EXPECT_THAT(refusal("hello\n" + ring), StartsWith("line 1: expected 'schedule'"));
  EXPECT_THAT(refusal("\n" + ring + "nonsense\n"), HasSubstr("expected a number"));
  EXPECT_THAT(refusal(ring + first),
              HasSubstr("all_reduce of 2 ranks with root 0: rank 1 has a second "
                        "schedule"));
  EXPECT_THAT(refusal(first), StartsWith("line 1: all_reduce of 2 ranks with root 0: rank 0 has no "
                                         "schedule in the text"));
  EXPECT_THAT(refusal("schedule all_reduce x rank 2 of 2 root 0 blocks 1 channels 1\n"),
              StartsWith("line 1: all_reduce of 2 ranks with root 0: rank 2 is not one of these"));
  const auto lines = std::ranges::count(ring, '\n');
  EXPECT_THAT(refusal(ring + "schedule nonsense\n"),
              StartsWith("line " + std::to_string(lines + 1) + ":"));
}

TEST(Names, RoundTrip) {
  for (std::size_t i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    const auto parsed = value_of(parse_collective(name(collective)));
    EXPECT_EQ(parsed, collective);
  }
  EXPECT_THAT(parse_collective("allreduce"), fails_with("all_reduce, reduce"));
}

}  // namespace
}  // namespace xylem::collectives
