// SPDX-License-Identifier: Apache-2.0
//
// Conversion of sixteen-bit floats on every instruction set of this machine: all 65536 values,
// every boundary between two neighbours, and fp32 values of every size.
#include "kernels/reduce.h"
#include "unit/kernels_reference.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace xylem::runtime {
namespace {

constexpr std::uint32_t kQuietNan = 0x7FC00000;

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

std::vector<float> widened(DataType type, const std::vector<std::uint16_t>& halves) {
  std::vector<float> result(halves.size());
  widen(result.data(), halves.data(), halves.size(), type);
  return result;
}

std::vector<std::uint16_t> narrowed(DataType type, const std::vector<float>& floats) {
  std::vector<std::uint16_t> result(floats.size());
  narrow(result.data(), floats.data(), floats.size(), type);
  return result;
}

std::vector<std::uint16_t> all_halves() {
  std::vector<std::uint16_t> result(1 << 16);
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = static_cast<std::uint16_t>(i);
  return result;
}

class KernelConversion : public testing::TestWithParam<DataType> {
 protected:
  /// Runs `check` with each instruction set of this machine in turn.
  template <typename Check>
  void on_every_target(Check check) {
    const std::vector<std::string_view> targets = kernel_targets();
    ASSERT_FALSE(targets.empty());
    for (const std::string_view target : targets) {
      SCOPED_TRACE(target);
      ASSERT_TRUE(force_kernel_target(target));
      check();
    }
    ASSERT_TRUE(force_kernel_target(""));
  }

  /// Narrows `inputs` and reports the first result that differs from `expected`.
  void expect_narrowed(const std::vector<float>& inputs,
                       const std::vector<std::uint16_t>& expected) {
    on_every_target([&] {
      const std::vector<std::uint16_t> got = narrowed(GetParam(), inputs);
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        ASSERT_EQ(got[i], expected[i]) << std::hexfloat << inputs[i] << " bits " << std::hex
                                       << bits_of(inputs[i]) << ", element " << std::dec << i;
      }
    });
  }

  const reference::HalfFormat& format() const { return reference::format_of(GetParam()); }
};

TEST_P(KernelConversion, WidensEveryValueExactly) {
  const std::vector<std::uint16_t> halves = all_halves();
  on_every_target([&] {
    const std::vector<float> got = widened(GetParam(), halves);
    for (std::size_t i = 0; i < halves.size(); ++i) {
      const std::uint32_t expected =
          reference::is_nan(format(), halves[i])
              ? kQuietNan
              : bits_of(static_cast<float>(reference::widen(format(), halves[i])));
      ASSERT_EQ(bits_of(got[i]), expected) << "half " << std::hex << halves[i];
    }
  });
}

TEST_P(KernelConversion, ReturnsEveryValueAfterWideningAndNarrowing) {
  const std::vector<std::uint16_t> halves = all_halves();
  on_every_target([&] {
    const std::vector<std::uint16_t> got = narrowed(GetParam(), widened(GetParam(), halves));
    for (std::size_t i = 0; i < halves.size(); ++i) {
      const std::uint16_t expected =
          reference::is_nan(format(), halves[i]) ? reference::quiet_nan(format()) : halves[i];
      ASSERT_EQ(got[i], expected) << "half " << std::hex << halves[i];
    }
  });
}

TEST_P(KernelConversion, RoundsTiesToEvenAndTheirNeighboursToTheNearer) {
  std::vector<float> inputs;
  std::vector<std::uint16_t> expected;
  // From zero to the largest finite value. Infinity counts as the neighbour above it.
  for (std::uint16_t low = 0; low < format().infinity; ++low) {
    const auto high = static_cast<std::uint16_t>(low + 1);
    const std::uint16_t even = (low & 1) == 0 ? low : high;
    const double below = reference::widen(format(), low);
    const double unit =
        low == format().infinity - 1
            ? below - reference::widen(format(), static_cast<std::uint16_t>(low - 1))
            : reference::widen(format(), high) - below;
    const auto middle = static_cast<float>(below + unit / 2);
    ASSERT_EQ(static_cast<double>(middle), below + unit / 2);
    for (const std::uint16_t sign : {0x0000, 0x8000}) {
      const float direction = sign != 0 ? -1.0f : 1.0f;
      inputs.push_back(direction * std::nextafterf(middle, 0.0f));
      expected.push_back(low | sign);
      inputs.push_back(direction * middle);
      expected.push_back(even | sign);
      inputs.push_back(direction * std::nextafterf(middle, std::numeric_limits<float>::infinity()));
      expected.push_back(high | sign);
    }
  }
  expect_narrowed(inputs, expected);
}

TEST_P(KernelConversion, KeepsInfinityAndEveryNan) {
  std::vector<float> inputs;
  std::vector<std::uint16_t> expected;
  for (const std::uint32_t sign : {0x00000000u, 0x80000000u}) {
    inputs.push_back(float_of(sign | 0x7F800000));
    expected.push_back(static_cast<std::uint16_t>(format().infinity | sign >> 16));
    // Each payload bit alone, which truncation could lose, and all bits but one, where a carry
    // could overflow.
    for (int bit = 0; bit < 23; ++bit) {
      inputs.push_back(float_of(sign | 0x7F800000 | 1u << bit));
      inputs.push_back(float_of(sign | (0x7FFFFFFF ^ 1u << bit)));
    }
    inputs.push_back(float_of(sign | 0x7FFFFFFF));
    expected.resize(inputs.size(), reference::quiet_nan(format()));
  }
  expect_narrowed(inputs, expected);
}

TEST_P(KernelConversion, AgreesWithTheReferenceAllOverFp32) {
  std::vector<float> inputs;
  std::vector<std::uint16_t> expected;
  // A prime, so that every low bit pattern occurs with every exponent.
  constexpr std::uint64_t kStride = 4099;
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += kStride) {
    inputs.push_back(float_of(static_cast<std::uint32_t>(bits)));
    expected.push_back(reference::narrow(format(), inputs.back()));
  }
  expect_narrowed(inputs, expected);
}

TEST_P(KernelConversion, TreatsEveryPositionAndCountAlike) {
  const std::vector<std::uint16_t> halves = all_halves();
  const std::vector<float> floats = widened(GetParam(), halves);
  on_every_target([&] {
    for (std::size_t first : {std::size_t{0x03F1}, std::size_t{0x7BF3}, std::size_t{0xFBF5}}) {
      for (std::size_t count = 0; count <= 70; ++count) {
        std::vector<float> wide(count + 1, -1.0f);
        widen(wide.data(), halves.data() + first, count, GetParam());
        std::vector<std::uint16_t> half(count + 1, 0x1234);
        narrow(half.data(), floats.data() + first, count, GetParam());
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(bits_of(wide[i]), bits_of(floats[first + i])) << count << " elements, at " << i;
          ASSERT_EQ(half[i], reference::narrow(format(), floats[first + i]))
              << count << " elements, at " << i;
        }
        ASSERT_EQ(wide[count], -1.0f);
        ASSERT_EQ(half[count], 0x1234);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Halves,
                         KernelConversion,
                         testing::Values(DataType::float16, DataType::bfloat16),
                         [](const auto& test) { return std::string(name(test.param)); });

}  // namespace
}  // namespace xylem::runtime
