// SPDX-License-Identifier: Apache-2.0
//
// Compares every reduction of every type with plain arithmetic, with every instruction set of this
// machine: small and odd counts, one to eight sources, in place on each source, at addresses that
// have only the alignment of the element.
#include "unit/kernels_reference.h"
#include "unit/kernels_types.h"
#include "xylem/execution/host_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace xylem::execution {
namespace {

constexpr std::size_t kCounts[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 100, 1000};
constexpr std::size_t kSourceCounts[] = {1, 2, 3, 5, 8};
constexpr std::uint32_t kDivisors[] = {2, 3, 8, 255, 1000, 4'294'967'295};

/// Elements between two guards. They begin `shift` elements after a vector boundary.
class Elements {
 public:
  Elements(DataType type, std::size_t count, std::size_t shift)
      : bytes_(count * size_of(type)), storage_(kGuard + bytes_ + kGuard + kAlignment, kUntouched) {
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data() + kGuard);
    start_ = kGuard + (kAlignment - address % kAlignment) % kAlignment + shift * size_of(type);
  }

  std::byte* data() { return storage_.data() + start_; }
  const std::byte* data() const { return storage_.data() + start_; }

  bool same_bytes(const Elements& other) const {
    return bytes_ == other.bytes_ &&
           (bytes_ == 0 || std::memcmp(data(), other.data(), bytes_) == 0);
  }
  bool guards_untouched() const {
    const auto begin = storage_.begin();
    const auto end = begin + static_cast<std::ptrdiff_t>(start_ + bytes_);
    const auto untouched = [](std::byte byte) { return byte == kUntouched; };
    return std::all_of(begin, begin + static_cast<std::ptrdiff_t>(start_), untouched) &&
           std::all_of(end, storage_.end(), untouched);
  }

 private:
  static constexpr std::size_t kAlignment = 64;
  static constexpr std::size_t kGuard = 64;
  static constexpr std::byte kUntouched{0xA5};

  std::size_t bytes_;
  std::vector<std::byte> storage_;
  std::size_t start_ = 0;
};

template <typename T>
T random_float(Random& random) {
  using Limits = std::numeric_limits<T>;
  constexpr T kSpecial[] = {T{0},
                            -T{0},
                            Limits::infinity(),
                            -Limits::infinity(),
                            Limits::quiet_NaN(),
                            -Limits::quiet_NaN(),
                            Limits::signaling_NaN(),
                            Limits::denorm_min(),
                            -Limits::min() / 3,
                            Limits::max(),
                            Limits::lowest(),
                            T{1}};
  if (random() % 4 == 0) return kSpecial[random() % std::size(kSpecial)];
  const double mantissa = std::uniform_real_distribution<double>(-2, 2)(random);
  return static_cast<T>(std::ldexp(mantissa, static_cast<int>(random() % 24) - 12));
}

/// Fills elements with random bits. Most floats have similar magnitudes, so that additions are
/// rounded; some are special values.
void fill(Elements& elements, DataType type, std::size_t count, Random& random) {
  for (std::size_t i = 0; i < count; ++i) {
    switch (type) {
      case DataType::float32:
        reference::put(elements.data(), i, random_float<float>(random));
        break;
      case DataType::float64:
        reference::put(elements.data(), i, random_float<double>(random));
        break;
      case DataType::float8_e4m3:
      case DataType::float8_e5m2:
      case DataType::float16:
      case DataType::bfloat16: {
        const bool any_bits = random() % 4 == 0;
        const auto& format = reference::format_of(type);
        reference::put_narrow(format, elements.data(), i,
                              any_bits ? static_cast<std::uint16_t>(random())
                                       : reference::narrow(format, random_float<float>(random)));
        break;
      }
      case DataType::boolean:
        reference::put(elements.data(), i,
                       random() % 2 == 0 ? std::uint8_t{0} : static_cast<std::uint8_t>(random()));
        break;
      default: {
        const std::uint64_t bits = random() % 8 == 0 ? 0 - (random() % 3) : random();
        std::memcpy(elements.data() + i * size_of(type), &bits, size_of(type));
      }
    }
  }
}

/// One call of a kernel. If it is in place, it also names the source that it overwrites.
struct Call {
  RedOp op;
  DataType type;
  std::size_t count;
  std::size_t shift = 0;
  std::uint32_t divisor = 1;
  std::optional<std::size_t> in_place = std::nullopt;

  std::size_t bytes() const { return count * size_of(type); }
};

std::ostream& operator<<(std::ostream& out, const Call& call) {
  out << name(call.op) << " of " << call.count << ' ' << name(call.type) << " shifted by "
      << call.shift << ", divisor " << call.divisor;
  return call.in_place ? out << ", in place of source " << *call.in_place : out << ", out of place";
}

/// The bytes of element `index` in hexadecimal, lowest address first.
std::string hex(const Elements& elements, std::size_t index, std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i) {
    constexpr char kDigits[] = "0123456789abcdef";
    const auto byte = std::to_integer<unsigned>(elements.data()[index * size + i]);
    text += {kDigits[byte / 16], kDigits[byte % 16]};
  }
  return text;
}

Elements expected_result(const Call& call, const std::vector<Elements>& inputs) {
  Elements result(call.type, call.count, 0);
  std::vector<const std::byte*> sources;
  for (const Elements& input : inputs) sources.push_back(input.data());
  for (std::size_t i = 0; i < call.count; ++i) {
    reference::reduce(call.op, call.type, result.data(), sources, i, call.divisor);
  }
  return result;
}

/// Calls the kernel on copies of `inputs`. Compares the target, the memory around the target, and
/// the sources that are not overwritten.
void expect_right(const Call& call,
                  ReduceKernel kernel,
                  const std::vector<Elements>& inputs,
                  const Elements& expected) {
  std::vector<Elements> sources;
  std::vector<const void*> addresses;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    sources.emplace_back(call.type, call.count, call.shift * (1 + k % 3));
    std::memcpy(sources[k].data(), inputs[k].data(), call.bytes());
  }
  for (const Elements& source : sources) addresses.push_back(source.data());
  Elements separate(call.type, call.count, call.shift);
  Elements& target = call.in_place ? sources[*call.in_place] : separate;

  kernel(target.data(), addresses.data(), addresses.size(), call.count, Finish{call.divisor});

  if (!target.same_bytes(expected)) {
    const std::size_t size = size_of(call.type);
    for (std::size_t i = 0; i < call.count; ++i) {
      ASSERT_EQ(hex(target, i, size), hex(expected, i, size))
          << call << ", " << inputs.size() << " sources, element " << i;
    }
  }
  ASSERT_TRUE(target.guards_untouched()) << call;
  for (std::size_t k = 0; k < sources.size(); ++k) {
    ASSERT_TRUE(call.in_place == k || sources[k].same_bytes(inputs[k])) << call << ", source " << k;
  }
}

class KernelReduce : public testing::TestWithParam<DataType> {
 protected:
  void SetUp() override {
    for (const std::string_view target : kernel_targets()) {
      ASSERT_TRUE(force_kernel_target(target));
      ASSERT_EQ(kernel_targets(), std::vector{target});
      ASSERT_TRUE(force_kernel_target(""));
      targets_.push_back(target);
    }
    ASSERT_FALSE(targets_.empty());
  }

  /// Calls the kernel with random input with every instruction set, out of place, and in place on
  /// each of `source_count` sources.
  void check(Call call, std::size_t source_count) {
    std::vector<Elements> inputs;
    for (std::size_t k = 0; k < source_count; ++k) {
      fill(inputs.emplace_back(call.type, call.count, 0), call.type, call.count, random_);
    }
    const Elements expected = expected_result(call, inputs);
    for (const std::string_view target : targets_) {
      SCOPED_TRACE(target);
      ASSERT_TRUE(force_kernel_target(target));
      const ReduceKernel kernel = reduce_kernel(call.op, call.type);
      call.in_place = std::nullopt;
      ASSERT_NO_FATAL_FAILURE(expect_right(call, kernel, inputs, expected));
      for (std::size_t k = 0; k < source_count; ++k) {
        call.in_place = k;
        ASSERT_NO_FATAL_FAILURE(expect_right(call, kernel, inputs, expected));
      }
    }
    ASSERT_TRUE(force_kernel_target(""));
  }

 private:
  std::vector<std::string_view> targets_;
  Random random_{20240229};
};

TEST_P(KernelReduce, EqualsTheReferenceBitForBitOnEveryTarget) {
  for (std::size_t i = 0; i < kRedOpCount; ++i) {
    const auto op = static_cast<RedOp>(i);
    if (!check_reduction(op, GetParam()).is_ok()) continue;
    for (const std::size_t count : kCounts) {
      for (const std::size_t sources : kSourceCounts) {
        for (const std::size_t shift : {0, 1}) {
          ASSERT_NO_FATAL_FAILURE(
              check({.op = op, .type = GetParam(), .count = count, .shift = shift}, sources));
        }
      }
    }
  }
}

TEST_P(KernelReduce, StaysRightOverManyBlocks) {
  for (const std::size_t sources : {2, 4}) {
    const RedOp op = sources == 2 ? RedOp::sum : RedOp::max;
    ASSERT_NO_FATAL_FAILURE(
        check({.op = op, .type = GetParam(), .count = (1 << 16) + 13, .shift = 1}, sources));
  }
}

TEST_P(KernelReduce, StaysRightOverManySources) {
  for (const RedOp op : {RedOp::sum, RedOp::product, RedOp::min}) {
    ASSERT_NO_FATAL_FAILURE(check({.op = op, .type = GetParam(), .count = 75}, 128));
  }
}

class KernelAverage : public KernelReduce {};

TEST_P(KernelAverage, DividesTheSumOnceAtTheEnd) {
  for (const std::uint32_t divisor : kDivisors) {
    for (const std::size_t count :
         {std::size_t{1}, std::size_t{7}, std::size_t{33}, std::size_t{5000}}) {
      for (const std::size_t sources : {1, 2, 3}) {
        const Call call{.op = RedOp::avg, .type = GetParam(), .count = count, .divisor = divisor};
        ASSERT_NO_FATAL_FAILURE(check(call, sources));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Floats, KernelReduce, testing::ValuesIn(kFloats), type_name);
INSTANTIATE_TEST_SUITE_P(Integers, KernelReduce, testing::ValuesIn(kIntegers), type_name);
INSTANTIATE_TEST_SUITE_P(Boolean, KernelReduce, testing::Values(DataType::boolean), type_name);
INSTANTIATE_TEST_SUITE_P(Floats, KernelAverage, testing::ValuesIn(kFloats), type_name);
INSTANTIATE_TEST_SUITE_P(Integers, KernelAverage, testing::ValuesIn(kIntegers), type_name);

TEST(KernelSum, GoesFromLeftToRight) {
  const float large = 1e8f;
  const float minus_large = -1e8f;
  const float one = 1.0f;
  float result = 0;
  const ReduceKernel sum = reduce_kernel(RedOp::sum, DataType::float32);
  const void* cancel_first[] = {&large, &minus_large, &one};
  sum(&result, cancel_first, 3, 1, {});
  EXPECT_EQ(result, 1.0f);
  const void* cancel_last[] = {&one, &large, &minus_large};
  sum(&result, cancel_last, 3, 1, {});
  EXPECT_EQ(result, 0.0f);
}

TEST(KernelSum, OfSixteenBitsRoundsOnce) {
  // In fp16, 2048 + 1 is a tie and is rounded back to 2048, so adding 1 twice would change nothing.
  // In fp32, the sum is 2050.
  const std::uint16_t large = 0x6800;
  const std::uint16_t one = 0x3C00;
  std::uint16_t result = 0;
  const void* sources[] = {&large, &one, &one};
  reduce_kernel(RedOp::sum, DataType::float16)(&result, sources, 3, 1, {});
  EXPECT_EQ(result, 0x6801);
}

TEST(KernelMinMax, PropagateNanAndOrderZeros) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float zeros[] = {0.0f, -0.0f};
  const float two = 2.0f;
  for (const RedOp op : {RedOp::min, RedOp::max}) {
    const ReduceKernel kernel = reduce_kernel(op, DataType::float32);
    float result = 0;
    const void* with_nan[] = {&nan, &two};
    kernel(&result, with_nan, 2, 1, {});
    EXPECT_TRUE(std::isnan(result));
    for (const int first : {0, 1}) {
      const void* both[] = {&zeros[first], &zeros[1 - first]};
      kernel(&result, both, 2, 1, {});
      EXPECT_EQ(std::signbit(result), op == RedOp::min);
    }
  }
}

TEST(KernelScale, MultipliesInFp32AndRoundsOnceOnEveryTarget) {
  Random random(7);
  for (const DataType type : kFloats) {
    for (const std::size_t count : kCounts) {
      for (const double factor : {0.1, -3.0, 1.0 / 3.0, 0.0}) {
        Elements input(type, count, 1);
        fill(input, type, count, random);
        Elements expected(type, count, 0);
        for (std::size_t i = 0; i < count; ++i) {
          reference::scale(type, expected.data(), input.data(), i, factor);
        }
        for (const std::string_view target : kernel_targets()) {
          ASSERT_TRUE(force_kernel_target(target));
          Elements result(type, count, 0);
          scale_kernel(type)(result.data(), input.data(), count, factor);
          Elements in_place = input;
          scale_kernel(type)(in_place.data(), in_place.data(), count, factor);
          ASSERT_TRUE(force_kernel_target(""));
          ASSERT_TRUE(result.same_bytes(expected)) << target << ' ' << name(type) << ' ' << count;
          ASSERT_TRUE(in_place.same_bytes(expected)) << target << ' ' << name(type) << ' ' << count;
        }
      }
    }
  }
}

TEST(KernelTargets, AreForcedByNameAndDiffer) {
  const std::vector<std::string_view> targets = kernel_targets();
  EXPECT_FALSE(force_kernel_target("AVX9"));
  EXPECT_EQ(kernel_targets(), targets);
  std::vector<ReduceKernel> kernels;
  for (const std::string_view target : targets) {
    ASSERT_TRUE(force_kernel_target(target));
    kernels.push_back(reduce_kernel(RedOp::sum, DataType::float32));
    EXPECT_EQ(std::count(kernels.begin(), kernels.end(), kernels.back()), 1) << target;
  }
  ASSERT_TRUE(force_kernel_target(""));
  EXPECT_EQ(reduce_kernel(RedOp::sum, DataType::float32), kernels.front());
}

TEST(KernelDeathTest, RefusesADivisorOnWhatIsNoSum) {
  const float one = 1.0f;
  float result = 0;
  const void* sources[] = {&one};
  const ReduceKernel product = reduce_kernel(RedOp::product, DataType::float32);
  EXPECT_DEATH(product(&result, sources, 1, 1, {.divisor = 2}), "divisor <= 1.* 2");
}

TEST(KernelDeathTest, RefusesAnUncheckedCombination) {
  EXPECT_DEATH(reduce_kernel(RedOp::bit_or, DataType::float32), "or float32");
}

}  // namespace
}  // namespace xylem::execution
