// SPDX-License-Identifier: Apache-2.0
//
// The values of xylem bench, which are exact in their type, and the search for wrong elements.
#include "tools/src/bench/pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

namespace xylem::tools {
namespace {

constexpr std::array kFloats{DataType::float8_e4m3, DataType::float8_e5m2, DataType::float16,
                             DataType::bfloat16,    DataType::float32,     DataType::float64};
constexpr std::array kIntegers{DataType::int8,   DataType::uint8,  DataType::int16,
                               DataType::uint16, DataType::int32,  DataType::uint32,
                               DataType::int64,  DataType::uint64, DataType::boolean};

/// The number of binary digits of a floating-point type, including the implicit leading digit.
int digits_of(DataType type) {
  switch (type) {
    case DataType::float8_e5m2: return 3;
    case DataType::float8_e4m3: return 4;
    case DataType::bfloat16: return 8;
    case DataType::float16: return 11;
    case DataType::float32: return 24;
    default: return 53;
  }
}

/// Decodes an element by the definition of its format. It is independent of the encoder under test.
double decode(const std::byte* at, DataType type) {
  if (type == DataType::float64) {
    double value = 0;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  if (type == DataType::float32) {
    float value = 0;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, size_of(type));
  const int width = 8 * static_cast<int>(size_of(type));
  const int fraction_bits = digits_of(type) - 1;
  const int bias = (1 << (width - fraction_bits - 2)) - 1;
  const int sign_bit = 1 << (width - 1);
  const int exponent = (bits & (sign_bit - 1)) >> fraction_bits;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = (bits & sign_bit) != 0 ? -1 : 1;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

std::vector<double> decode(const std::vector<std::byte>& period, DataType type) {
  std::vector<double> values;
  for (std::size_t i = 0; i < period.size(); i += size_of(type)) {
    values.push_back(decode(period.data() + i, type));
  }
  return values;
}

double combine(RedOp op, double a, double b) {
  switch (op) {
    case RedOp::product: return a * b;
    case RedOp::min: return std::min(a, b);
    case RedOp::max: return std::max(a, b);
    default: return a + b;
  }
}

/// True if `value` is exact in `type`. It must be an integer in the range of the type.
bool is_exact(double value, DataType type) {
  const int digits = digits_of(type);
  const int unstored = value == 0 ? 0 : std::max(0, std::ilogb(value) + 1 - digits);
  return value == std::floor(value) && std::fmod(value, std::ldexp(1.0, unstored)) == 0 &&
         std::abs(value) <= std::ldexp(1.0, std::max(digits, 8));
}

class FloatPattern : public testing::TestWithParam<std::tuple<DataType, RedOp, std::uint32_t>> {};

TEST_P(FloatPattern, ReducesToItsResultThroughExactValuesOnly) {
  const auto [type, op, ranks] = GetParam();
  const Pattern pattern = Pattern::reduced(type, op, ranks);
  std::vector<double> forward;
  std::vector<double> backward;
  std::vector<std::vector<double>> inputs;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    inputs.push_back(decode(pattern.input(rank), type));
    for (double& value : inputs.back()) value *= pattern.reduce_op(rank).factor;
  }
  const auto result = decode(pattern.result(), type);
  for (std::size_t i = 0; i < Pattern::kPeriod; ++i) {
    double up = inputs.front()[i];
    double down = inputs.back()[i];
    for (std::uint32_t k = 1; k < ranks; ++k) {
      ASSERT_TRUE(is_exact(up, type)) << up;
      ASSERT_TRUE(is_exact(down, type)) << down;
      up = combine(op, up, inputs[k][i]);
      down = combine(op, down, inputs[ranks - 1 - k][i]);
    }
    ASSERT_TRUE(is_exact(up, type)) << up;
    ASSERT_EQ(up, down);
    ASSERT_EQ(op == RedOp::avg ? up / ranks : up, result[i]) << "element " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All,
                         FloatPattern,
                         testing::Combine(testing::ValuesIn(kFloats),
                                          testing::Values(RedOp::sum,
                                                          RedOp::product,
                                                          RedOp::min,
                                                          RedOp::max,
                                                          RedOp::avg,
                                                          RedOp::premul_sum),
                                          testing::Values(1, 2, 3, 8, 300)),
                         [](const auto& one) {
                           return std::string(name(std::get<0>(one.param))) + "_" +
                                  std::string(name(std::get<1>(one.param))) + "_" +
                                  std::to_string(std::get<2>(one.param));
                         });

TEST(IntegerPattern, SumsWithWrapAround) {
  const Pattern pattern = Pattern::reduced(DataType::int8, RedOp::sum, 3);
  const auto a = pattern.input(0);
  const auto b = pattern.input(1);
  const auto c = pattern.input(2);
  const auto result = pattern.result();
  bool wrapped = false;
  for (std::size_t i = 0; i < Pattern::kPeriod; ++i) {
    const int sum = static_cast<std::int8_t>(a[i]) + static_cast<std::int8_t>(b[i]) +
                    static_cast<std::int8_t>(c[i]);
    wrapped |= sum != static_cast<std::int8_t>(sum);
    ASSERT_EQ(static_cast<std::int8_t>(result[i]), static_cast<std::int8_t>(sum));
  }
  EXPECT_TRUE(wrapped) << "the values should use all bits";
}

TEST(IntegerPattern, ComparesBySign) {
  for (const auto& [type, least] : {std::pair{DataType::int8, -100}, {DataType::uint8, 0}}) {
    const auto result = Pattern::reduced(type, RedOp::min, 2).result();
    int found = 1000;
    for (const std::byte byte : result) {
      found = std::min(found, type == DataType::int8 ? static_cast<std::int8_t>(byte)
                                                     : std::to_integer<int>(byte));
    }
    EXPECT_LE(found, least == 0 ? 10 : least);
  }
}

TEST(IntegerPattern, AveragesAreWhole) {
  for (const DataType type : {DataType::int8, DataType::uint8}) {
    for (const std::uint32_t ranks : {2U, 3U, 7U, 200U}) {
      const Pattern pattern = Pattern::reduced(type, RedOp::avg, ranks);
      const auto result = pattern.result();
      std::vector<int> sums(Pattern::kPeriod);
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        const auto input = pattern.input(rank);
        for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += std::to_integer<int>(input[i]);
      }
      for (std::size_t i = 0; i < sums.size(); ++i) {
        ASSERT_LE(sums[i], type == DataType::int8 ? 127 : 255) << "no wrap-around before dividing";
        ASSERT_EQ(sums[i] % static_cast<int>(ranks), 0);
        ASSERT_EQ(std::to_integer<int>(result[i]), sums[i] / static_cast<int>(ranks));
      }
    }
  }
}

TEST(BooleanPattern, HasBothResults) {
  for (const RedOp op : {RedOp::sum, RedOp::product, RedOp::bit_and, RedOp::bit_or, RedOp::bit_xor,
                         RedOp::min, RedOp::max}) {
    const auto result = Pattern::reduced(DataType::boolean, op, 5).result();
    EXPECT_NE(std::ranges::find(result, std::byte{0}), result.end()) << name(op);
    EXPECT_NE(std::ranges::find(result, std::byte{1}), result.end()) << name(op);
    EXPECT_TRUE(std::ranges::all_of(result, [](std::byte b) { return b <= std::byte{1}; }));
  }
}

TEST(Pattern, DiffersBetweenRanksAndPlaces) {
  for (const DataType type : {DataType::int8, DataType::float8_e4m3, DataType::float64}) {
    const Pattern pattern = Pattern::moved(type);
    const auto mine = pattern.input(0);
    EXPECT_GT(count_wrong(mine.data(), 0, Pattern::kPeriod, pattern.input(1)),
              Pattern::kPeriod * 9 / 10);
    EXPECT_GT(count_wrong(mine.data(), 64, Pattern::kPeriod, mine), Pattern::kPeriod * 9 / 10);
  }
}

TEST(Fill, RepeatsThePeriodFromAnyPlace) {
  const auto period = Pattern::moved(DataType::int32).input(3);
  std::vector<std::byte> data(4 * 10000);
  fill(data.data(), 4000, 10000, period);
  EXPECT_EQ(count_wrong(data.data(), 4000, 10000, period), 0U);
  EXPECT_EQ(count_wrong(data.data(), 4000 + Pattern::kPeriod, 10000, period), 0U);
  EXPECT_TRUE(std::equal(data.begin(), data.begin() + 4, period.begin() + 4 * 4000));
}

TEST(Fill, InvertedIsWrongEverywhere) {
  for (const DataType type : kIntegers) {
    const auto period = Pattern::moved(type).input(0);
    std::vector<std::byte> data(size_of(type) * 5000);
    fill(data.data(), 17, 5000, period, true);
    EXPECT_EQ(count_wrong(data.data(), 17, 5000, period), 5000U) << name(type);
  }
}

TEST(CountWrong, CountsElementsAndNotBytes) {
  const auto period = Pattern::moved(DataType::float64).input(0);
  std::vector<std::byte> data(8 * 9000);
  fill(data.data(), 0, 9000, period);
  data[8 * 4100] ^= std::byte{1};
  data[8 * 4100 + 7] ^= std::byte{1};
  data[8 * 8999 + 3] ^= std::byte{1};
  EXPECT_EQ(count_wrong(data.data(), 0, 9000, period), 2U);
}

}  // namespace
}  // namespace xylem::tools
