// SPDX-License-Identifier: Apache-2.0
//
// Element types and reductions by name, and the combinations that are refused.
#include "support/outcome.h"
#include "xylem/base/data_type.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace xylem {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::vector<DataType> all_types() {
  std::vector<DataType> types;
  for (std::size_t i = 0; i < kDataTypeCount; ++i) types.push_back(static_cast<DataType>(i));
  return types;
}

std::vector<RedOp> all_redops() {
  std::vector<RedOp> redops;
  for (std::size_t i = 0; i < kRedOpCount; ++i) redops.push_back(static_cast<RedOp>(i));
  return redops;
}

bool is_floating(DataType type) {
  return type == DataType::float16 || type == DataType::bfloat16 || type == DataType::float32 ||
         type == DataType::float64 || type == DataType::float8_e4m3 ||
         type == DataType::float8_e5m2;
}

TEST(DataTypeName, IsReadBackAsTheSameType) {
  std::set<std::string_view> names;
  for (const DataType type : all_types()) {
    const Result<DataType> parsed = parse_data_type(name(type));
    ASSERT_TRUE(parsed.is_ok()) << name(type);
    EXPECT_EQ(*parsed, type);
    names.insert(name(type));
  }
  EXPECT_EQ(names.size(), kDataTypeCount);
}

TEST(DataTypeName, HasTheFieldsShortForms) {
  const std::vector<std::pair<std::string_view, DataType>> forms{
      {"fp16", DataType::float16},       {"half", DataType::float16},
      {"bf16", DataType::bfloat16},      {"float", DataType::float32},
      {"fp32", DataType::float32},       {"double", DataType::float64},
      {"i32", DataType::int32},          {"u8", DataType::uint8},
      {"f8e4m3", DataType::float8_e4m3}, {"f8e5m2", DataType::float8_e5m2}};
  for (const auto& [text, type] : forms) {
    const Result<DataType> parsed = parse_data_type(text);
    ASSERT_TRUE(parsed.is_ok()) << text;
    EXPECT_EQ(*parsed, type) << text;
  }
}

TEST(DataTypeName, UnknownSuggestsTheNearestAndListsAll) {
  const Status status = parse_data_type("flaot32").status();
  EXPECT_THAT(status, fails_as(Code::invalid_argument, "\"flaot32\"", "did you mean \"float32\"?",
                               "int8, ", "float8_e5m2"));
}

TEST(DataTypeName, UnknownFarFromAllSuggestsNone) {
  const Status status = parse_data_type("quaternion").status();
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("quaternion"), Not(HasSubstr("did you mean"))));
  EXPECT_EQ(parse_data_type("").code(), Code::invalid_argument);
}

TEST(DataTypeSize, IsTheBytesOfOneElement) {
  EXPECT_EQ(size_of(DataType::boolean), 1u);
  EXPECT_EQ(size_of(DataType::float8_e4m3), 1u);
  EXPECT_EQ(size_of(DataType::int16), 2u);
  EXPECT_EQ(size_of(DataType::bfloat16), 2u);
  EXPECT_EQ(size_of(DataType::uint32), sizeof(std::uint32_t));
  EXPECT_EQ(size_of(DataType::float64), sizeof(double));
}

TEST(RedOpName, IsReadBackAsTheSameReduction) {
  std::set<std::string_view> names;
  for (const RedOp op : all_redops()) {
    const Result<RedOp> parsed = parse_redop(name(op));
    ASSERT_TRUE(parsed.is_ok()) << name(op);
    EXPECT_EQ(*parsed, op);
    names.insert(name(op));
  }
  EXPECT_EQ(names.size(), kRedOpCount);
  EXPECT_EQ(*parse_redop("product"), RedOp::product);
  EXPECT_EQ(*parse_redop("average"), RedOp::avg);
}

TEST(RedOpName, UnknownSuggestsTheNearestAndListsAll) {
  const Status status = parse_redop("premulsum").status();
  EXPECT_THAT(status, fails_as(Code::invalid_argument, "\"premulsum\"",
                               "did you mean \"premul_sum\"?", "sum, prod, min"));
}

TEST(CheckReduction, AllowsExactlyWhatTheTypesDocumentationSays) {
  for (const DataType type : all_types()) {
    for (const RedOp op : all_redops()) {
      const bool bitwise = op == RedOp::bit_and || op == RedOp::bit_or || op == RedOp::bit_xor;
      Code expected = Code::ok;
      if ((bitwise && is_floating(type)) || (op == RedOp::premul_sum && !is_floating(type)) ||
          (op == RedOp::avg && type == DataType::boolean)) {
        expected = Code::invalid_argument;
      }
      EXPECT_EQ(check_reduction(op, type).code(), expected) << name(op) << " of " << name(type);
    }
  }
}

TEST(CheckReduction, NamesTheValuesAndTheRemedy) {
  const auto message = [](RedOp op, DataType type) {
    return std::string(check_reduction(op, type).message());
  };
  EXPECT_THAT(message(RedOp::bit_or, DataType::float8_e4m3),
              AllOf(HasSubstr("or of float8_e4m3"), HasSubstr("as uint8")));
  EXPECT_THAT(message(RedOp::bit_xor, DataType::bfloat16),
              AllOf(HasSubstr("xor of bfloat16"), HasSubstr("as uint16")));
  EXPECT_THAT(message(RedOp::premul_sum, DataType::int32),
              AllOf(HasSubstr("premul_sum of int32"), HasSubstr("use sum")));
  EXPECT_THAT(message(RedOp::premul_sum, DataType::boolean), HasSubstr("premul_sum of bool"));
  EXPECT_THAT(message(RedOp::avg, DataType::boolean),
              AllOf(HasSubstr("avg of bool"), HasSubstr("as uint8")));
}

TEST(CheckReduction, RefusesWhatIsNoReductionOrNoType) {
  for (const int value : {9, 42, 255}) {
    for (const DataType type : all_types()) {
      const Status status = check_reduction(static_cast<RedOp>(value), type);
      EXPECT_THAT(status,
                  fails_as(Code::invalid_argument, std::to_string(value) + " is not a RedOp",
                           "from sum (0) to premul_sum (8)"));
    }
  }
  for (const int value : {15, 99, 255}) {
    for (const RedOp op : all_redops()) {
      const Status status = check_reduction(op, static_cast<DataType>(value));
      EXPECT_THAT(status,
                  fails_as(Code::invalid_argument, std::to_string(value) + " is not a DataType",
                           "from int8 (0) to float8_e5m2 (14)"));
    }
  }
}

}  // namespace
}  // namespace xylem
