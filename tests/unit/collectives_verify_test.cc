// SPDX-License-Identifier: Apache-2.0
//
// Wrong schedules, written by hand. At least one violates each claim of the verifier. The verifier
// must report this claim and the place of the error.
#include "model/mapped_plans.h"
#include "model/plans.h"
#include "xylem/collectives/builder.h"
#include "xylem/collectives/text.h"
#include "xylem/collectives/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace xylem::collectives {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

using Texts = std::vector<std::string>;

std::vector<Schedule> parse_all(const Texts& texts) {
  std::vector<Schedule> ranks;
  for (const std::string& text : texts) {
    const auto schedule = parse_schedule(text);
    EXPECT_TRUE(schedule.is_ok()) << schedule.status().to_string();
    if (schedule) ranks.push_back(*schedule);
  }
  return ranks;
}

// Replaces one passage of `text`. The text must contain the passage.
std::string with(std::string text, std::string_view passage, std::string_view replacement) {
  const std::size_t at = text.find(passage);
  EXPECT_NE(at, std::string::npos) << passage;
  return text.replace(at, passage.size(), replacement);
}

template <typename... Fragments>
void expect_rejected(const std::vector<Schedule>& ranks,
                     const std::string& claim,
                     Fragments... fragments) {
  const Status outcome = verify(ranks);
  EXPECT_EQ(outcome.code(), Code::bad_schedule);
  EXPECT_THAT(std::string(outcome.message()),
              AllOf(StartsWith(claim + ":"), HasSubstr(fragments)...));
}

// A correct schedule: two ranks exchange the whole buffer.
Texts exchange() {
  return {R"(schedule all_reduce exchange rank 0 of 2 root 0 blocks 1 channels 1
scratch 0
0: send ch0 peer 1 input[0]
1: recv ch0 peer 1 scratch[0]
2: reduce output[0] = input[0] + scratch[0] finish  after 0 1
)",
          R"(schedule all_reduce exchange rank 1 of 2 root 0 blocks 1 channels 1
scratch 0
0: send ch0 peer 0 input[0]
1: recv ch0 peer 0 scratch[0]
2: reduce output[0] = scratch[0] + input[0] finish  after 0 1
)"};
}

std::vector<Schedule> exchange_with(std::size_t rank,
                                    std::string_view passage,
                                    std::string_view replacement) {
  Texts texts = exchange();
  texts[rank] = with(texts[rank], passage, replacement);
  return parse_all(texts);
}

TEST(Verify, AcceptsARightExchange) { EXPECT_TRUE(verify(parse_all(exchange())).is_ok()); }

TEST(VerifyForm, NamesAnIndexOutOfBounds) {
  expect_rejected(exchange_with(1, "recv ch0 peer 0 scratch[0]", "recv ch0 peer 0 scratch[1]"),
                  "form", "rank 1, step 1 (recv)", "scratch[1]", "rank 1 has 1");
  expect_rejected(exchange_with(0, "peer 1 input", "peer 2 input"), "form", "peer 2 of 2");
  expect_rejected(exchange_with(0, "peer 1 input", "peer 0 input"), "form", "its peer is itself");
  expect_rejected(exchange_with(0, "send ch0", "send ch1"), "form", "channel 1 of 1");
  expect_rejected(exchange_with(0, "scratch 0\n", "scratch 1\n"), "form", "holds block 1 of 1");
}

TEST(VerifyForm, KeepsTheInputUnwritten) {
  expect_rejected(exchange_with(0, "reduce output[0]", "reduce input[0]"), "form",
                  "writes the input");
}

TEST(VerifyForm, LetsOnlyReductionsReduce) {
  const Texts texts = {R"(schedule broadcast wrong rank 0 of 1 root 0 blocks 1 channels 1
0: reduce output[0] = input[0]
)"};
  expect_rejected(parse_all(texts), "form", "broadcast combines nothing");
}

TEST(VerifyForm, WantsSchedulesThatBelongTogether) {
  expect_rejected({}, "form", "0 schedules");
  expect_rejected(exchange_with(1, "exchange", "other"), "form", "schedule 1",
                  "differ from those of rank 0");
  std::vector<Schedule> one = parse_all(exchange());
  one.pop_back();
  expect_rejected(one, "form", "1 schedules, but they are for 2 ranks");
  std::vector<Schedule> swapped = parse_all(exchange());
  std::swap(swapped[0], swapped[1]);
  expect_rejected(swapped, "form", "schedule 0", "says it is rank 1's");
}

TEST(VerifyForm, ChecksTheHeader) {
  const auto with_header = [](auto&& change) {
    std::vector<Schedule> ranks = parse_all(exchange());
    for (Schedule& schedule : ranks) change(schedule);
    return ranks;
  };
  expect_rejected(with_header([](Schedule& s) { s.shape.root = 1; }), "form",
                  "root 1 of 2 ranks in all_reduce");
  expect_rejected(with_header([](Schedule& s) { s.channels = 0; }), "form", "0 channels");
  expect_rejected(with_header([](Schedule& s) { s.channels = 17; }), "form", "17 channels");
  expect_rejected(with_header([](Schedule& s) { s.blocks = 0; }), "form", "0 blocks");
  expect_rejected(with_header([](Schedule& s) { s.blocks = 4000000000; }), "form",
                  "4000000000 blocks");
  expect_rejected(with_header([](Schedule& s) { s.shape.collective = Collective::all_gather; }),
                  "form", "all_gather has 2 of them");
}

TEST(VerifyForm, ChecksEveryFieldOfAStep) {
  const auto with_step = [](StepId id, auto&& change) {
    std::vector<Schedule> ranks = parse_all(exchange());
    change(ranks[0].steps[id]);
    return ranks;
  };
  expect_rejected(with_step(0, [](Step& s) { s.kind = static_cast<StepKind>(9); }), "form",
                  "unknown kind 9");
  expect_rejected(with_step(0, [](Step& s) { s.reserved = 1; }), "form", "reserved");
  expect_rejected(with_step(0, [](Step& s) { s.value = 1; }), "form", "value 1");
  expect_rejected(with_step(0, [](Step& s) { s.finish = true; }), "form",
                  "only a reduce can finish");
  expect_rejected(with_step(0, [](Step& s) { s.chunk_count = 0; }), "form", "moves 0 chunks");
  expect_rejected(with_step(0, [](Step& s) { s.source_count = 2; }), "form", "has 2 sources");
  expect_rejected(with_step(0, [](Step& s) { s.first_source = 99; }), "form", "beyond the end");
  expect_rejected(with_step(0, [](Step& s) { s.target = 0; }), "form", "target 0");
  expect_rejected(with_step(1, [](Step& s) { s.target = kNone; }), "form", "target");
  expect_rejected(with_step(2, [](Step& s) { s.peer = 1; }), "form", "talks to no one");
  expect_rejected(with_step(2, [](Step& s) { s.first_predecessor = 99; }), "form",
                  "predecessors beyond");
  std::vector<Schedule> ranks = parse_all(exchange());
  ranks[0].predecessors[0] = 2;
  expect_rejected(ranks, "form", "comes after step 2, which is not before it");
}

TEST(VerifyForm, MatchesSendsAndReceives) {
  expect_rejected(
      exchange_with(1, "0: send ch0 peer 0 input[0]\n1:", "0: copy output[0] = input[0]\n1:"),
      "form", "rank 0, step 1 (recv ch0 peer 1 scratch[0])", "has no send");
  expect_rejected(
      exchange_with(1, "1: recv ch0 peer 0 scratch[0]", "1: copy scratch[0] = input[0]"), "form",
      "rank 0, step 0 (send ch0 peer 1 input[0])", "has no receive");
}

TEST(VerifyForm, WantsTheSameBlocksAtBothEndsAndInAllOperands) {
  const Texts crossed = {R"(schedule all_gather wrong rank 0 of 2 root 0 blocks 2 channels 1
0: copy output[0] = input[0]
1: send ch0 peer 1 input[0]
2: recv ch0 peer 1 output[1]
)",
                         R"(schedule all_gather wrong rank 1 of 2 root 0 blocks 2 channels 1
0: copy output[1] = input[0]
1: send ch0 peer 0 input[0]
2: recv ch0 peer 0 output[1]
)"};
  expect_rejected(parse_all(crossed), "form", "rank 0, step 1", "moves other blocks",
                  "rank 1, step 2");
  Texts copied = crossed;
  copied[0] = with(copied[0], "copy output[0]", "copy output[1]");
  expect_rejected(parse_all(copied), "form", "input[0] holds block 0, where block 1 is meant");
}

TEST(VerifyForm, MovesNoBlockTwiceInOneStep) {
  const Texts texts = {R"(schedule all_reduce wrong rank 0 of 1 root 0 blocks 1 channels 1
scratch 0 0 0 0
0: copy scratch[0..1] = scratch[2..3]
)"};
  expect_rejected(parse_all(texts), "form", "moves block 0 twice");
}

TEST(VerifyForm, MatchesSignalsAndWaits) {
  const auto barrier = [](std::string_view rank0, std::string_view rank1) {
    return parse_all(
        {"schedule barrier wrong rank 0 of 2 root 0 blocks 0 channels 1\n" + std::string(rank0),
         "schedule barrier wrong rank 1 of 2 root 0 blocks 0 channels 1\n" + std::string(rank1)});
  };
  expect_rejected(barrier("0: signal ch0 peer 1\n1: wait ch0 peer 1 value 2\n",
                          "0: signal ch0 peer 0\n1: wait ch0 peer 0 value 1\n"),
                  "form", "rank 0, step 1 (wait ch0 peer 1 value 2)", "signals 1 times only");
  expect_rejected(
      barrier("0: signal ch0 peer 1\n1: wait ch0 peer 1 value 1\n",
              "0: signal ch0 peer 0\n1: signal ch0 peer 0\n2: wait ch0 peer 0 value 1\n"),
      "form", "rank 1, step 1", "never awaited");
}

TEST(VerifyForm, KeepsOthersFromRingsAndPrivateMemory) {
  Texts texts = exchange();
  texts[1] = with(texts[1], "scratch[0] + input[0]", "scratch[0]@0 + input[0]");
  expect_rejected(parse_all(texts), "form", "is a ring there");
  expect_rejected(exchange_with(0, "send ch0 peer 1 input[0]", "send ch0 peer 1 input[0]@1"),
                  "form", "only copy and reduce read others' memory");
}

TEST(VerifyProgress, FindsRanksThatWaitForEachOther) {
  Texts texts = exchange();
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const std::string peer = std::to_string(1 - rank);
    const std::string send = "send ch0 peer " + peer + " input[0]";
    const std::string recv = "recv ch0 peer " + peer + " scratch[0]";
    texts[rank] = with(texts[rank], "0: " + send + "\n1: " + recv,
                       "0: " + recv + "\n1: " + send + "  after 0");
  }
  expect_rejected(parse_all(texts), "progress", "deadlock", "rank 0, step 1 (send",
                  "rank 1, step 1 (send");
}

TEST(VerifyProgress, FindsMessagesThatBlockTheirOwnChannel) {
  // Block 0 waits for an echo of block 1, which is sent after block 0 on the same channel.
  const Texts blocked = {R"(schedule broadcast echo rank 0 of 2 root 0 blocks 2 channels 2
scratch 1
0: recv ch0 peer 1 scratch[0]
1: send ch0 peer 1 input[0]  after 0
2: send ch0 peer 1 input[1]
3: copy output[0..1] = input[0..1]
)",
                         R"(schedule broadcast echo rank 1 of 2 root 0 blocks 2 channels 2
0: recv ch0 peer 0 output[0]
1: recv ch0 peer 0 output[1]
2: send ch0 peer 0 output[1]  after 1
)"};
  expect_rejected(parse_all(blocked), "progress", "rank 0, step 1", "rank 0, step 2");
  Texts free = blocked;
  free[0] = with(free[0], "2: send ch0", "2: send ch1");
  free[1] = with(free[1], "1: recv ch0", "1: recv ch1");
  EXPECT_TRUE(verify(parse_all(free)).is_ok()) << verify(parse_all(free)).to_string();
}

TEST(VerifyProgress, FindsSignalsThatWaitForEachOther) {
  const Texts texts = {R"(schedule barrier wrong rank 0 of 2 root 0 blocks 0 channels 1
0: wait ch0 peer 1 value 1
1: signal ch0 peer 1  after 0
)",
                       R"(schedule barrier wrong rank 1 of 2 root 0 blocks 0 channels 1
0: wait ch0 peer 0 value 1
1: signal ch0 peer 0  after 0
)"};
  expect_rejected(parse_all(texts), "progress", "wait ch0 peer 1 value 1", "signal ch0 peer 0");
}

// Partial sums wait in rings until it is their turn on the channel. Their senders wait for room in
// these rings. If there are more slices than the rings can contain, every rank waits for the next
// rank.
TEST(VerifyProgress, FindsRingsOfScratchThatLock) {
  const Shape shape{Collective::reduce_scatter, 3, 0};
  std::vector<Schedule> ranks;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    Builder plan("locking_ring", shape, rank);
    const std::uint32_t next = (rank + 1) % 3;
    const std::uint32_t previous = (rank + 2) % 3;
    plan.send(next, input(previous));
    const Chunks first = plan.add_scratch(next);
    plan.recv(previous, first);
    const Chunks sum = plan.add_scratch(next);
    plan.reduce(sum, {first, input(next)});
    plan.send(next, sum);
    const Chunks second = plan.add_scratch(rank);
    plan.recv(previous, second);
    plan.reduce(output(0), {second, input(rank)}, true);
    ranks.push_back(std::move(plan).take());
  }
  expect_rejected(ranks, "progress", "deadlock", "reduce scratch[1] = scratch[0]");
}

TEST(VerifyOrder, FindsAReadThatMayComeBeforeTheWrite) {
  expect_rejected(exchange_with(0, "finish  after 0 1", "finish  after 0"), "order",
                  "rank 0, step 1", "rank 0, step 2", "scratch[0] of rank 0");
}

TEST(VerifyOrder, FindsAWriteThatMayComeBeforeARead) {
  const Texts texts = {R"(schedule all_reduce wrong rank 0 of 2 root 0 blocks 1 channels 1
scratch 0
0: copy output[0] = input[0]
1: send ch0 peer 1 output[0]  after 0
2: recv ch0 peer 1 scratch[0]
3: reduce output[0] = output[0] + scratch[0] finish  after 0 2
)",
                       R"(schedule all_reduce wrong rank 1 of 2 root 0 blocks 1 channels 1
scratch 0
0: send ch0 peer 0 input[0]
1: recv ch0 peer 0 scratch[0]
2: reduce output[0] = scratch[0] + input[0] finish  after 0 1
)"};
  expect_rejected(parse_all(texts), "order", "rank 0, step 1", "rank 0, step 3",
                  "output[0] of rank 0");
}

TEST(VerifyOrder, AcceptsOrderThroughMessages) {
  // Step 3 overwrites the memory that step 1 sends. It depends only on the reply, which the peer
  // sends after it has received that message.
  const Texts texts = {R"(schedule all_reduce echo rank 0 of 2 root 0 blocks 1 channels 1
0: copy output[0] = input[0]
1: send ch0 peer 1 output[0]  after 0
2: recv ch0 peer 1 output[0]  after 0
)",
                       R"(schedule all_reduce echo rank 1 of 2 root 0 blocks 1 channels 1
scratch 0
0: recv ch0 peer 0 scratch[0]
1: reduce output[0] = scratch[0] + input[0] finish  after 0
2: send ch0 peer 0 output[0]  after 1
)"};
  EXPECT_TRUE(verify(parse_all(texts)).is_ok()) << verify(parse_all(texts)).to_string();
}

TEST(VerifyAliasing, FindsAnInputThatIsSentWhileTheOutputIsWritten) {
  expect_rejected(exchange_with(0, "finish  after 0 1", "finish  after 1"), "aliasing", "in place",
                  "rank 0, step 0", "rank 0, step 2", "input[0] of rank 0");
}

TEST(VerifyAliasing, FindsAnInputThatIsReadAfterTheOutputIsWritten) {
  Texts texts = exchange();
  texts[0] = with(texts[0], "2: reduce output[0] = input[0] + scratch[0] finish  after 0 1",
                  "2: copy output[0] = scratch[0]  after 0 1\n"
                  "3: reduce output[0] = input[0] + output[0] finish  after 0 1 2");
  expect_rejected(parse_all(texts), "aliasing", "rank 0, step 3", "sees other values");
}

TEST(VerifyContributions, FindsAMissingContribution) {
  expect_rejected(exchange_with(0, "input[0] + scratch[0]", "scratch[0]"), "contributions",
                  "rank 0, step 2", "finishes with 1 of 2");
  expect_rejected(exchange_with(0, "input[0] + scratch[0] finish", "scratch[0]"), "contributions",
                  "output[0] of rank 0", "1 of 2 contributions");
}

TEST(VerifyContributions, FindsAContributionThatCountsTwice) {
  expect_rejected(exchange_with(0, "input[0] + scratch[0]", "input[0] + scratch[0] + input[0]"),
                  "contributions", "counts the input of rank 0 twice");
}

TEST(VerifyContributions, WantsReductionsFinishedExactlyOnce) {
  expect_rejected(exchange_with(0, "finish", ""), "contributions", "does not finish");
  expect_rejected(
      exchange_with(0, "after 0 1", "after 0 1\n3: reduce output[0] = output[0] finish  after 2"),
      "contributions", "already finished");
}

TEST(VerifyContributions, WantsTheSameBitsOnAllRanks) {
  expect_rejected(exchange_with(0, "input[0] + scratch[0]", "scratch[0] + input[0]"),
                  "contributions", "output[0] of rank 1", "another order");
}

TEST(VerifyContributions, FindsWhatWasNeverWritten) {
  Texts texts = exchange();
  texts[0] = with(with(texts[0], "scratch 0\n", "scratch 0 0\n"), "input[0] + scratch[0]",
                  "input[0] + scratch[1]");
  expect_rejected(parse_all(texts), "contributions",
                  "reads scratch[1] of rank 0, which nothing has written");
  const Texts idle = {"schedule scatter idle rank 0 of 1 root 0 blocks 1 channels 1\n"};
  expect_rejected(parse_all(idle), "contributions", "output[0] of rank 0 is never written");
}

TEST(VerifyContributions, FindsAnothersDataInABroadcast) {
  const Texts texts = {R"(schedule broadcast wrong rank 0 of 1 root 0 blocks 1 channels 1
0: copy output[0] = input[0]
)"};
  EXPECT_TRUE(verify(parse_all(texts)).is_ok());
  const Texts gathered = {R"(schedule all_gather wrong rank 0 of 2 root 0 blocks 2 channels 1
scratch 1
0: copy output[0] = input[0]
1: send ch0 peer 1 input[0]
2: recv ch0 peer 1 output[1]
)",
                          R"(schedule all_gather wrong rank 1 of 2 root 0 blocks 2 channels 1
0: send ch0 peer 0 input[0]
1: recv ch0 peer 0 output[0]
)"};
  expect_rejected(parse_all(gathered), "contributions", "output[1] of rank 1 is never written");
}

TEST(VerifyContributions, FindsABarrierThatLetsOneLeaveEarly) {
  const Texts texts = {R"(schedule barrier wrong rank 0 of 3 root 0 blocks 0 channels 1
0: signal ch0 peer 1
1: wait ch0 peer 2 value 1
)",
                       R"(schedule barrier wrong rank 1 of 3 root 0 blocks 0 channels 1
0: wait ch0 peer 0 value 1
1: signal ch0 peer 2  after 0
)",
                       R"(schedule barrier wrong rank 2 of 3 root 0 blocks 0 channels 1
0: wait ch0 peer 1 value 1
1: signal ch0 peer 0  after 0
)"};
  expect_rejected(parse_all(texts), "contributions", "rank 1 can leave the barrier before rank 2");
}

// Mapped memory: correct plans must be accepted, and the same plans with one dependency removed
// must be rejected.
class Mapped : public testing::TestWithParam<Schedule (*)(const Shape&, std::uint32_t)> {
 protected:
  std::vector<Schedule> plan(std::uint32_t ranks) const {
    return model::plan_all({"", Collective::all_reduce, "", GetParam()},
                           {Collective::all_reduce, ranks, 0});
  }
};

TEST_P(Mapped, PlansAreProven) {
  for (const std::uint32_t ranks : {1U, 2U, 3U, 5U, 8U, 11U}) {
    EXPECT_TRUE(verify(plan(ranks)).is_ok()) << verify(plan(ranks)).to_string();
  }
}

TEST_P(Mapped, PlansAreRejectedWithoutAnyOneOfTheirWaits) {
  const std::vector<Schedule> right = plan(3);
  for (StepId id = 0; id < right[1].steps.size(); ++id) {
    const auto before = right[1].predecessors_of(right[1].steps[id]);
    for (std::size_t i = 0; i < before.size(); ++i) {
      if (right[1].steps[before[i]].kind != StepKind::wait) continue;
      std::vector<Schedule> wrong = right;
      Step& step = wrong[1].steps[id];
      // Removes dependency i: the last dependency replaces it.
      wrong[1].predecessors[step.first_predecessor + i] = before.back();
      --step.predecessor_count;
      const Status outcome = verify(wrong);
      EXPECT_EQ(outcome.code(), Code::bad_schedule)
          << "step " << id << " without step " << before[i];
      EXPECT_TRUE(outcome.message().starts_with("order:") ||
                  outcome.message().starts_with("aliasing:"))
          << outcome.to_string();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    AllReduce, Mapped, testing::Values(model::read_inputs, model::read_scratch, model::put_inputs));

TEST(VerifyOrder, ReturnsMappedMemoryBeforeItsOwnerLeaves) {
  const Texts texts = {R"(schedule broadcast wrong rank 0 of 2 root 0 blocks 1 channels 1
0: signal ch0 peer 1
1: copy output[0] = input[0]
2: wait ch0 peer 1 value 1
)",
                       R"(schedule broadcast wrong rank 1 of 2 root 0 blocks 1 channels 1
0: wait ch0 peer 0 value 1
1: copy output[0] = input[0]@0  after 0
2: signal ch0 peer 0  after 1
)"};
  EXPECT_TRUE(verify(parse_all(texts)).is_ok()) << verify(parse_all(texts)).to_string();
  Texts early = texts;
  early[1] = with(early[1], "signal ch0 peer 0  after 1", "signal ch0 peer 0  after 0");
  expect_rejected(parse_all(early), "order", "rank 1, step 1",
                  "memory of rank 0 after that rank has ended");
  Texts soon = texts;
  soon[1] = with(soon[1], "input[0]@0  after 0", "input[0]@0");
  expect_rejected(parse_all(soon), "order", "memory of rank 0 before that rank has begun");
}

}  // namespace
}  // namespace xylem::collectives
