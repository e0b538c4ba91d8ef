// SPDX-License-Identifier: Apache-2.0
//
// Reductions of 8-bit floats with every instruction set of this machine: all pairs of values,
// overflow, NaN, and rounding.
#include "unit/kernels_reference.h"
#include "unit/kernels_types.h"
#include "xylem/execution/host_kernels.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace xylem::execution {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kPairs = 256 * 256;

const std::byte* elements(const Bytes& bytes) {
  return reinterpret_cast<const std::byte*>(bytes.data());
}

class KernelFloat8 : public testing::TestWithParam<DataType> {
 protected:
  KernelFloat8() {
    for (std::size_t i = 0; i < kPairs; ++i) {
      first[i] = static_cast<std::uint8_t>(i / 256);
      second[i] = static_cast<std::uint8_t>(i % 256);
    }
  }
  void TearDown() override { ASSERT_TRUE(force_kernel_target("")); }

  /// Combines all pairs with every instruction set.
  void check(RedOp op, std::uint32_t divisor) {
    Bytes expected(kPairs);
    const std::byte* sources[] = {elements(first), elements(second)};
    for (std::size_t i = 0; i < kPairs; ++i) {
      reference::reduce(op, GetParam(), reinterpret_cast<std::byte*>(expected.data()), sources, i,
                        divisor);
    }
    for (const std::string_view target : kernel_targets_of_machine()) {
      ASSERT_TRUE(force_kernel_target(target));
      const void* addresses[] = {first.data(), second.data()};
      Bytes got(kPairs);
      reduce_kernel(op, GetParam())(got.data(), addresses, 2, kPairs, {divisor});
      for (std::size_t i = 0; i < kPairs; ++i) {
        ASSERT_EQ(got[i], expected[i]) << name(op) << " of " << i / 256 << " and " << i % 256
                                       << ", divisor " << divisor << ", " << target;
      }
    }
  }

  static std::vector<std::string_view> kernel_targets_of_machine() {
    force_kernel_target("");
    return kernel_targets();
  }

  Bytes first = Bytes(kPairs), second = Bytes(kPairs);
};

TEST_P(KernelFloat8, CombinesEveryPairAsTheReferenceDoes) {
  for (const RedOp op : {RedOp::sum, RedOp::product, RedOp::min, RedOp::max}) {
    ASSERT_NO_FATAL_FAILURE(check(op, 1));
  }
  for (const std::uint32_t divisor : {2, 3, 5, 8, 1000}) {
    ASSERT_NO_FATAL_FAILURE(check(RedOp::avg, divisor));
  }
}

TEST_P(KernelFloat8, ScalesEveryValueAsTheReferenceDoes) {
  constexpr std::size_t kValues = 256;
  for (const double factor : {0.5, 2.0, 1.0 / 3.0, -3.0, 0.0, 1e-40, 1e300}) {
    Bytes expected(kValues);
    for (std::size_t i = 0; i < kValues; ++i) {
      reference::scale(GetParam(), reinterpret_cast<std::byte*>(expected.data()), elements(second),
                       i, factor);
    }
    for (const std::string_view target : kernel_targets_of_machine()) {
      ASSERT_TRUE(force_kernel_target(target));
      Bytes got(kValues);
      scale_kernel(GetParam())(got.data(), second.data(), kValues, factor);
      EXPECT_EQ(got, expected) << factor << ", " << target;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats,
                         KernelFloat8,
                         testing::Values(DataType::float8_e4m3, DataType::float8_e5m2),
                         type_name);

/// Returns the reduction of one element of each source.
int reduced(RedOp op, DataType type, std::initializer_list<std::uint8_t> values) {
  std::vector<const void*> sources;
  for (const std::uint8_t& value : values) sources.push_back(&value);
  std::uint8_t result = 0;
  reduce_kernel(op, type)(&result, sources.data(), sources.size(), 1, {});
  return result;
}

TEST(KernelFloat8E4M3, SaturatesOnOverflow) {
  constexpr DataType kType = DataType::float8_e4m3;
  constexpr std::uint8_t k448 = 0x7E, k32 = 0x60, k16 = 0x58, kMinus448 = 0xFE;
  EXPECT_EQ(reduced(RedOp::sum, kType, {k448, k16}), k448);
  EXPECT_EQ(reduced(RedOp::sum, kType, {k448, k32}), k448);
  EXPECT_EQ(reduced(RedOp::product, kType, {k448, kMinus448}), kMinus448);
  EXPECT_EQ(reduced(RedOp::sum, kType, {k448, k448, kMinus448}), k448) << "a step rounds once";
  // 448 to the power of 15 is infinite in fp32.
  EXPECT_EQ(reduced(RedOp::product, kType,
                    {k448, k448, k448, k448, k448, k448, k448, k448, k448, k448, k448, k448, k448,
                     k448, k448, k448}),
            k448);
}

TEST(KernelFloat8E5M2, OverflowsToInfinity) {
  constexpr DataType kType = DataType::float8_e5m2;
  constexpr std::uint8_t k57344 = 0x7B, k4096 = 0x6C, k3584 = 0x6B, kInfinity = 0x7C;
  EXPECT_EQ(reduced(RedOp::sum, kType, {k57344, k3584}), k57344);
  EXPECT_EQ(reduced(RedOp::sum, kType, {k57344, k4096}), kInfinity) << "a tie goes to the even";
  EXPECT_EQ(reduced(RedOp::sum, kType, {kInfinity, 0x80 | kInfinity}), 0x7F);
  EXPECT_EQ(reduced(RedOp::max, kType, {kInfinity, k57344}), kInfinity);
}

TEST(KernelFloat8Sum, RoundsOnce) {
  // In E4M3, 16 + 1 is a tie and is rounded back to 16, so adding 1 twice would change nothing. In
  // fp32, the sum is 18.
  EXPECT_EQ(reduced(RedOp::sum, DataType::float8_e4m3, {0x58, 0x38, 0x38}), 0x59);
  // The same in E5M2 with 8 + 1 + 1, whose sum in fp32 is 10.
  EXPECT_EQ(reduced(RedOp::sum, DataType::float8_e5m2, {0x48, 0x3C, 0x3C}), 0x49);
}

TEST(KernelFloat8MinMax, PropagateNanAndOrderZeros) {
  for (const DataType type : {DataType::float8_e4m3, DataType::float8_e5m2}) {
    for (const RedOp op : {RedOp::min, RedOp::max}) {
      EXPECT_EQ(reduced(op, type, {0xFF, 0x38}), 0x7F);
      EXPECT_EQ(reduced(op, type, {0x38, 0x7F}), 0x7F);
      EXPECT_EQ(reduced(op, type, {0x00, 0x80}), op == RedOp::min ? 0x80 : 0x00);
      EXPECT_EQ(reduced(op, type, {0x80, 0x00}), op == RedOp::min ? 0x80 : 0x00);
    }
  }
}

}  // namespace
}  // namespace xylem::execution
