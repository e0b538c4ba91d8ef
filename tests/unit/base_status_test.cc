// SPDX-License-Identifier: Apache-2.0
//
// Status, Result, XYLEM_TRY and XYLEM_CHECK.
#include "xylem/base/check.h"
#include "xylem/base/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

namespace xylem {
namespace {

constexpr auto kLastCode = static_cast<int>(Code::internal);

TEST(Status, OkIsNullAndSaysOk) {
  const Status status;
  EXPECT_TRUE(status.is_ok());
  EXPECT_TRUE(status);
  EXPECT_EQ(status.code(), Code::ok);
  EXPECT_TRUE(status.message().empty());
  EXPECT_FALSE(status.peer().has_value());
  EXPECT_EQ(status.to_string(), "ok");
  EXPECT_EQ(sizeof(Status), sizeof(std::shared_ptr<const Error>));
}

TEST(Status, FailureKeepsCodeMessageAndPeer) {
  const Status status = failure(Code::peer_lost, "rank 3 died", 3);
  EXPECT_FALSE(status);
  EXPECT_EQ(status.code(), Code::peer_lost);
  EXPECT_EQ(status.message(), "rank 3 died");
  EXPECT_EQ(status.peer(), 3U);
  EXPECT_EQ(status.to_string(), "peer_lost: rank 3 died");
}

TEST(Status, CopiesShareOneError) {
  const Status status = failure(Code::busy, "2 operations pending");
  const Status copy =
      status;  // NOLINT(performance-unnecessary-copy-initialization): the copy is the subject
  EXPECT_EQ(copy.message().data(), status.message().data());
}

TEST(Status, FailureWithoutMessageIsItsCode) {
  EXPECT_EQ(failure(Code::cancelled, "").to_string(), "cancelled");
}

TEST(Status, EveryCodeHasItsOwnName) {
  std::set<std::string_view> names;
  for (int code = 0; code <= kLastCode; ++code) names.insert(name(static_cast<Code>(code)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kLastCode) + 1);
  EXPECT_FALSE(names.contains("unknown"));
}

TEST(Status, ValueOutsideTheEnumerationIsUnknown) {
  EXPECT_EQ(name(static_cast<Code>(kLastCode + 1)), "unknown");
}

TEST(Result, HoldsAValue) {
  const Result<int> result = 7;
  ASSERT_TRUE(result.is_ok());
  EXPECT_EQ(*result, 7);
  EXPECT_EQ(result.code(), Code::ok);
  EXPECT_TRUE(result.status().is_ok());
}

TEST(Result, HoldsTheReason) {
  const Result<int> result = failure(Code::timed_out, "after 60 s");
  EXPECT_FALSE(result);
  EXPECT_EQ(result.code(), Code::timed_out);
  EXPECT_EQ(result.status().message(), "after 60 s");
  EXPECT_THROW((void)result.value(), std::bad_variant_access);
}

TEST(Result, MovesOutWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(5);
  const std::unique_ptr<int> value = *std::move(result);
  EXPECT_EQ(*value, 5);
}

Result<int> half(int number) {
  if (number % 2 != 0) return failure(Code::invalid_argument, std::to_string(number) + " is odd");
  return number / 2;
}

Result<int> quarter(int number) {
  XYLEM_TRY(const int once, half(number));
  XYLEM_TRY(const int twice, half(once));
  return twice;
}

Status require_quarter(int number) {
  XYLEM_TRY(quarter(number));
  return Status::ok();
}

TEST(Try, GoesOnWithTheValue) {
  const auto result = quarter(12);
  ASSERT_TRUE(result);
  EXPECT_EQ(*result, 3);
  EXPECT_TRUE(require_quarter(4));
}

TEST(Try, ReturnsTheFirstError) {
  EXPECT_EQ(quarter(6).status().message(), "3 is odd");
  EXPECT_EQ(quarter(7).status().message(), "7 is odd");
  EXPECT_EQ(require_quarter(6).message(), "3 is odd");
}

TEST(CheckDeathTest, NamesConditionPlaceAndValues) {
  const int a = 1;
  const int b = 2;
  EXPECT_DEATH(XYLEM_CHECK(a == b, a, b),
               "xylem: bug at .*base_status_test.cc:[0-9]+: check failed: a == b with 1 2");
}

TEST(CheckDeathTest, NeedsNoValues) {
  const bool sane = false;
  EXPECT_DEATH(XYLEM_CHECK(sane), "check failed: sane\n");
}

TEST(Check, PassesSilentlyAndDoesNotEvaluateValues) {
  int evaluated = 0;
  XYLEM_CHECK(evaluated == 0, ++evaluated);
  EXPECT_EQ(evaluated, 0);
}

}  // namespace
}  // namespace xylem
