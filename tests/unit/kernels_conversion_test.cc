// SPDX-License-Identifier: Apache-2.0
//
// Conversion of 16-bit and 8-bit floats with every instruction set of this machine: all values,
// every boundary between two adjacent values, and fp32 values of every magnitude.
#include "unit/kernels_reference.h"
#include "unit/kernels_types.h"
#include "xylem/execution/host_kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace xylem::execution {
namespace {

constexpr std::uint32_t kQuietNan = 0x7FC00000;

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

/// Elements of a format, in the lower bits.
using Codes = std::vector<std::uint16_t>;

std::vector<float> widened(DataType type, const Codes& codes) {
  const reference::NarrowFormat& format = reference::format_of(type);
  std::vector<std::byte> elements(codes.size() * format.bytes);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    reference::put_narrow(format, elements.data(), i, codes[i]);
  }
  std::vector<float> result(codes.size());
  widen(result.data(), elements.data(), codes.size(), type);
  return result;
}

Codes narrowed(DataType type, const std::vector<float>& floats) {
  const reference::NarrowFormat& format = reference::format_of(type);
  std::vector<std::byte> elements(floats.size() * format.bytes);
  narrow(elements.data(), floats.data(), floats.size(), type);
  Codes result(floats.size());
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = reference::narrow_at(format, elements.data(), i);
  }
  return result;
}

Codes all_codes(DataType type) {
  Codes result(reference::format_of(type).values());
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
  void expect_narrowed(const std::vector<float>& inputs, const Codes& expected) {
    on_every_target([&] {
      const Codes got = narrowed(GetParam(), inputs);
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        ASSERT_EQ(got[i], expected[i]) << std::hexfloat << inputs[i] << " bits " << std::hex
                                       << bits_of(inputs[i]) << ", element " << std::dec << i;
      }
    });
  }

  const reference::NarrowFormat& format() const { return reference::format_of(GetParam()); }
};

TEST_P(KernelConversion, WidensEveryValueExactly) {
  const Codes codes = all_codes(GetParam());
  on_every_target([&] {
    const std::vector<float> got = widened(GetParam(), codes);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const std::uint32_t expected =
          reference::is_nan(format(), codes[i])
              ? kQuietNan
              : bits_of(static_cast<float>(reference::widen(format(), codes[i])));
      ASSERT_EQ(bits_of(got[i]), expected) << "element " << std::hex << codes[i];
    }
  });
}

TEST_P(KernelConversion, ReturnsEveryValueAfterWideningAndNarrowing) {
  const Codes codes = all_codes(GetParam());
  on_every_target([&] {
    const Codes got = narrowed(GetParam(), widened(GetParam(), codes));
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const std::uint16_t expected =
          reference::is_nan(format(), codes[i]) ? format().quiet_nan : codes[i];
      ASSERT_EQ(got[i], expected) << "element " << std::hex << codes[i];
    }
  });
}

TEST_P(KernelConversion, RoundsTiesToEvenAndTheirNeighboursToTheNearer) {
  std::vector<float> inputs;
  Codes expected;
  // From zero to the greatest finite value. The value above it counts as overflow.
  for (std::uint16_t low = 0; low <= format().greatest; ++low) {
    const bool is_greatest = low == format().greatest;
    const auto high = static_cast<std::uint16_t>(is_greatest ? format().overflow : low + 1);
    const std::uint16_t even = (low & 1) == 0 ? low : high;
    const double below = reference::widen(format(), low);
    const double unit =
        is_greatest ? below - reference::widen(format(), static_cast<std::uint16_t>(low - 1))
                    : reference::widen(format(), high) - below;
    const auto middle = static_cast<float>(below + unit / 2);
    ASSERT_EQ(static_cast<double>(middle), below + unit / 2);
    for (const bool is_negative : {false, true}) {
      const std::uint16_t sign = is_negative ? format().sign() : 0;
      const float direction = is_negative ? -1.0f : 1.0f;
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

TEST_P(KernelConversion, TakesInfinityForOverflowAndKeepsEveryNan) {
  std::vector<float> inputs;
  Codes expected;
  for (const std::uint32_t sign : {0x00000000u, 0x80000000u}) {
    inputs.push_back(float_of(sign | 0x7F800000));
    expected.push_back(format().overflow | (sign != 0 ? format().sign() : 0));
    // NaNs with a single payload bit, which truncation could lose, and NaNs with all payload bits
    // but one, in which a carry could overflow.
    for (int bit = 0; bit < 23; ++bit) {
      inputs.push_back(float_of(sign | 0x7F800000 | 1u << bit));
      inputs.push_back(float_of(sign | (0x7FFFFFFF ^ 1u << bit)));
    }
    inputs.push_back(float_of(sign | 0x7FFFFFFF));
    expected.resize(inputs.size(), format().quiet_nan);
  }
  expect_narrowed(inputs, expected);
}

TEST_P(KernelConversion, AgreesWithTheReferenceAllOverFp32) {
  std::vector<float> inputs;
  Codes expected;
  // A prime, so that every pattern of low bits occurs with every exponent.
  constexpr std::uint64_t kStride = 4099;
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += kStride) {
    inputs.push_back(float_of(static_cast<std::uint32_t>(bits)));
    expected.push_back(reference::narrow(format(), inputs.back()));
  }
  expect_narrowed(inputs, expected);
}

TEST_P(KernelConversion, TreatsEveryPositionAndCountAlike) {
  const Codes codes = all_codes(GetParam());
  const std::vector<float> floats = widened(GetParam(), codes);
  std::vector<std::byte> elements(codes.size() * format().bytes);
  for (const std::uint16_t code : codes) {
    reference::put_narrow(format(), elements.data(), code, code);
  }
  on_every_target([&] {
    constexpr std::size_t kMost = 70;
    for (const std::size_t place : {0x03F1, 0x7BF3, 0xFBF5}) {
      const std::size_t first = place % (codes.size() - kMost);
      for (std::size_t count = 0; count <= kMost; ++count) {
        std::vector<float> wide(count + 1, -1.0f);
        widen(wide.data(), elements.data() + first * format().bytes, count, GetParam());
        std::vector<std::byte> narrow_ones((count + 1) * format().bytes, std::byte{0x12});
        narrow(narrow_ones.data(), floats.data() + first, count, GetParam());
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(bits_of(wide[i]), bits_of(floats[first + i])) << count << " elements, at " << i;
          ASSERT_EQ(reference::narrow_at(format(), narrow_ones.data(), i),
                    reference::narrow(format(), floats[first + i]))
              << count << " elements, at " << i;
        }
        ASSERT_EQ(wide[count], -1.0f);
        ASSERT_EQ(narrow_ones.back(), std::byte{0x12});
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Narrow, KernelConversion, testing::ValuesIn(kNarrowFloats), type_name);

}  // namespace
}  // namespace xylem::execution
