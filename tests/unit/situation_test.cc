// SPDX-License-Identifier: Apache-2.0
//
// Messages about the state of a group: a message that is written and read is unchanged, and other
// bytes are refused.
#include "runtime/src/failure/situation.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>

namespace xylem::runtime {
namespace {

Situation example() {
  Situation situation;
  situation.group = 0x1234567890ULL;
  situation.sequence = 77;
  situation.state = Situation::State::waiting;
  situation.is_question = true;
  situation.roll_call = 5;
  situation.answers = {.caller = 3, .number = 9};
  situation.blocked_on = 2;
  situation.blocked_bytes = 1 << 20;
  for (std::uint64_t call = 0; call < Situation::kMostRecords; ++call) {
    CallRecord record;
    record.sequence = 70 + call;
    record.history = call * call;
    record.collective = collectives::Collective::all_reduce;
    record.type = DataType::float32;
    record.count = 1000;
    record.label = 12;
    situation.records.push_back(record);
  }
  return situation;
}

TEST(SituationMessage, IsReadAsItWasWritten) {
  const Situation written = example();
  const auto decoded = decode(encode(written));
  const auto* read = std::get_if<Situation>(&decoded);
  ASSERT_NE(read, nullptr);
  EXPECT_EQ(read->group, written.group);
  EXPECT_EQ(read->sequence, written.sequence);
  EXPECT_EQ(read->state, written.state);
  EXPECT_EQ(read->is_question, written.is_question);
  EXPECT_EQ(read->roll_call, written.roll_call);
  EXPECT_EQ(read->answers, written.answers);
  EXPECT_EQ(read->blocked_on, written.blocked_on);
  EXPECT_EQ(read->blocked_bytes, written.blocked_bytes);
  ASSERT_EQ(read->records.size(), written.records.size());
  EXPECT_EQ(describe(read->records.back()), "all_reduce of 1000 float32, sum, label 12");
  EXPECT_EQ(read->records.back().history, written.records.back().history);
}

TEST(SituationMessage, CutAtAnyByteIsRefused) {
  const auto whole = encode(example());
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const auto decoded = decode(std::span(whole).first(length));
    EXPECT_TRUE(std::holds_alternative<std::monostate>(decoded)) << length;
  }
}

TEST(SituationMessage, WithValuesThatDoNotExistIsRefused) {
  Situation situation = example();
  situation.state = static_cast<Situation::State>(4);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(decode(encode(situation))));
  situation = example();
  situation.records.push_back(situation.records.back());
  EXPECT_TRUE(std::holds_alternative<std::monostate>(decode(encode(situation))));
  situation = example();
  situation.records.front().type = static_cast<DataType>(200);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(decode(encode(situation))));
}

Refusal refusal() {
  return {.to = 3,
          .is_answer = true,
          .header = {.group = 0x1234567890ULL,
                     .count = 5000,
                     .number = 77,
                     .source = 2,
                     .tag = 9,
                     .type = static_cast<std::uint8_t>(DataType::float32)},
          .room = 4999};
}

TEST(RefusalMessage, IsReadAsItWasWritten) {
  const Refusal written = refusal();
  const auto decoded = decode(encode(written));
  const auto* read = std::get_if<Refusal>(&decoded);
  ASSERT_NE(read, nullptr);
  EXPECT_EQ(read->to, 3U);
  EXPECT_TRUE(read->is_answer);
  EXPECT_EQ(std::memcmp(&read->header, &written.header, sizeof(MessageHeader)), 0);
  EXPECT_EQ(read->room, 4999U);
}

TEST(RefusalMessage, ThatIsDamagedIsRefused) {
  const auto whole = encode(refusal());
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const auto decoded = decode(std::span(whole).first(length));
    EXPECT_TRUE(std::holds_alternative<std::monostate>(decoded)) << length;
  }
  Refusal other = refusal();
  other.header.type = 200;
  EXPECT_TRUE(std::holds_alternative<std::monostate>(decode(encode(other))));
}

TEST(VerdictMessage, IsReadAsItWasWritten) {
  Verdict verdict{.group = 8, .code = Code::timed_out, .culprit = 4, .message = "so it is"};
  const auto decoded = decode(encode(verdict));
  const auto* read = std::get_if<Verdict>(&decoded);
  ASSERT_NE(read, nullptr);
  EXPECT_EQ(read->group, 8U);
  EXPECT_EQ(read->code, Code::timed_out);
  EXPECT_EQ(read->culprit, 4U);
  EXPECT_EQ(read->message, "so it is");
  verdict.code = static_cast<Code>(0);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(decode(encode(verdict))));
}

}  // namespace
}  // namespace xylem::runtime
