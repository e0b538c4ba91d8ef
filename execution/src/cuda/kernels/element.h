// SPDX-License-Identifier: Apache-2.0
//
// Element types and operations of the device kernels, for nvcc and for the host's compiler. Each
// result has the same bits as that of the CPU's kernels (execution/src/kernels), so both must be
// compiled without contraction of a multiplication and an addition into one operation.
//
// An element type has two types: `Stored` is what lies in memory; `Value` is what operations
// compute with, fp32 for floats of 16 and 8 bits. load() and store() convert between them. store()
// rounds once, to nearest even, and turns every NaN into one positive quiet NaN.
//
// Some devices also convert floats of 16 and 8 bits in pairs, with a fraction of the instructions.
// An element type then has load_pair(), store_pair() or both. load_pair() converts the two elements
// in the lower bits of its argument; the first element has the lowest bits. store_pair() has the
// right result only if is_plain() is true for both values.
#pragma once

#include "cuda/kernels/arguments.h"

#include <cstdint>
#include <type_traits>

namespace xylem::execution::cuda {

/// The unsigned integer of the same size.
template <class T>
using Bits = std::conditional_t<
    sizeof(T) == 1,
    std::uint8_t,
    std::conditional_t<sizeof(T) == 2,
                       std::uint16_t,
                       std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>>;

/// An unsigned integer in which sums and products of two integers of type T wrap as in T. Types
/// below 32 bits would be promoted to int, whose overflow is undefined.
template <class T>
using Wrapping = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

template <class To, class From>
XYLEM_DEVICE constexpr To bit_cast(From from) {
  return __builtin_bit_cast(To, from);
}

template <class T>
XYLEM_DEVICE bool is_nan(T value) {
  return value != value;  // NOLINT(misc-redundant-expression): only a NaN differs from itself
}

// Element types.

/// An integer or a bool. A bool whose byte is not 0 is read as true.
template <class T>
struct Integer {
  using Stored = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;
  using Value = T;

  static XYLEM_DEVICE Value load(Stored stored) { return static_cast<Value>(stored); }
  static XYLEM_DEVICE Stored store(Value value) { return static_cast<Stored>(value); }
};

/// fp32 or fp64.
template <class T>
struct Floating {
  using Stored = T;
  using Value = T;

  static XYLEM_DEVICE Value load(Stored stored) { return stored; }
  static XYLEM_DEVICE Stored store(Value value) {
    constexpr Bits<T> kQuietNan =
        sizeof(T) == 4 ? Bits<T>{0x7FC00000u} : static_cast<Bits<T>>(0x7FF8000000000000u);
    return is_nan(value) ? bit_cast<T>(kQuietNan) : value;
  }
};

/// Rounds a magnitude, which is fp32 bits without a sign, to nearest even in a format with these
/// numbers of exponent and mantissa bits. A carry goes into the exponent, so the least number that
/// is too large becomes infinity. The caller must handle all greater numbers.
template <std::uint32_t ExponentBits, std::uint32_t MantissaBits>
XYLEM_DEVICE std::uint32_t rounded(std::uint32_t magnitude) {
  constexpr std::uint32_t kShift = 23u - MantissaBits;
  constexpr std::uint32_t kBiasGap = 127u - ((1u << (ExponentBits - 1u)) - 1u);
  if (magnitude < (kBiasGap + 1u) << 23) {
    // The result is subnormal. Next to this power of two, fp32 has the spacing of the format's
    // subnormals. So this addition shifts and rounds at once.
    constexpr std::uint32_t kSameSpacing = (kBiasGap + 1u + kShift) << 23;
    return bit_cast<std::uint32_t>(bit_cast<float>(magnitude) + bit_cast<float>(kSameSpacing)) -
           kSameSpacing;
  }
  // Changes the bias of the exponent. Adds half a unit, less one, plus the last bit that is kept,
  // so that a tie is rounded up only from an odd value.
  constexpr std::uint32_t kHalfUnit = 1u << (kShift - 1u);
  return (magnitude - (kBiasGap << 23) + (kHalfUnit - 1u) + (magnitude >> kShift & 1u)) >> kShift;
}

/// A bfloat16 is the upper half of the fp32 of the same value.
struct BFloat16 {
  using Stored = std::uint16_t;
  using Value = float;

  static XYLEM_DEVICE Value load(Stored stored) {
    return bit_cast<float>(static_cast<std::uint32_t>(stored) << 16);
  }
  static XYLEM_DEVICE Stored store(Value value) {
    const auto bits = bit_cast<std::uint32_t>(value);
    // Adds half a unit, less one, plus the last bit that is kept, so that a tie is rounded up only
    // from an odd value. A carry goes into the exponent.
    const std::uint32_t rounded = bits + 0x7FFFu + (bits >> 16 & 1u);
    return static_cast<Stored>(is_nan(value) ? 0x7FC0u : rounded >> 16);
  }

  static XYLEM_DEVICE bool is_plain(Value value) { return !is_nan(value); }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  static XYLEM_DEVICE std::uint32_t store_pair(Value first, Value second) {
    std::uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
  }
#endif
};

/// On a device, instructions do the conversions. They have the same results as the arithmetic for
/// the host: widening is exact; narrowing (rn) rounds to nearest even, keeps subnormals since it
/// has no .ftz, and turns overflow into infinity. Instructions may produce any NaN, since store()
/// replaces each NaN.
struct Float16 {
  using Stored = std::uint16_t;
  using Value = float;

  static XYLEM_DEVICE Value load(Stored stored) {
#ifdef __CUDA_ARCH__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(stored));
    return value;
#else
    const std::uint32_t sign = (stored & 0x8000u) << 16;
    const std::uint32_t magnitude = (stored & 0x7FFFu) << 13;
    const std::uint32_t exponent = magnitude & kInfinity << 13;
    std::uint32_t bits = magnitude + kBiasGap;
    if (exponent == kInfinity << 13) {
      bits += kBiasGap;  // Infinity and NaN: exponent 31 becomes fp32's 255.
    } else if (exponent == 0) {
      // Puts an implicit one at 2^-14 before the mantissa, then subtracts that one.
      constexpr std::uint32_t kUnit = 1u << 23;
      bits = bit_cast<std::uint32_t>(bit_cast<float>(bits + kUnit) - bit_cast<float>(kSmallest));
    }
    return bit_cast<float>(bits | sign);
#endif
  }

  static XYLEM_DEVICE Stored store(Value value) {
#ifdef __CUDA_ARCH__
    Stored stored;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(stored) : "f"(value));
    return is_nan(value) ? kQuietNan : stored;
#else
    const auto all = bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = all >> 16 & 0x8000u;
    const std::uint32_t magnitude = all & 0x7FFFFFFFu;
    if (is_nan(value)) return kQuietNan;
    const std::uint32_t bits = magnitude < kTooLarge ? rounded<5, 10>(magnitude) : kInfinity;
    return static_cast<Stored>(bits | sign);
#endif
  }

  static XYLEM_DEVICE bool is_plain(Value value) { return !is_nan(value); }
  static XYLEM_DEVICE void load_both(std::uint32_t halves, Value* values) {
    values[0] = load(static_cast<Stored>(halves));
    values[1] = load(static_cast<Stored>(halves >> 16));
  }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  static XYLEM_DEVICE std::uint32_t store_pair(Value first, Value second) {
    std::uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
  }
#endif

 private:
  static constexpr Stored kQuietNan = 0x7E00;
  static constexpr std::uint32_t kInfinity = 0x7C00;              ///< Bits of fp16; below: fp32.
  static constexpr std::uint32_t kBiasGap = (127u - 15u) << 23;   ///< Difference of the biases.
  static constexpr std::uint32_t kSmallest = (127u - 14u) << 23;  ///< 2^-14, the least normal.
  static constexpr std::uint32_t kTooLarge = (127u + 16u) << 23;  ///< 2^16.
};

/// E5M2 is the upper byte of an fp16. A value that is too large becomes an infinity.
struct Float8E5M2 {
  using Stored = std::uint8_t;
  using Value = float;

  static XYLEM_DEVICE Value load(Stored stored) {
    return Float16::load(static_cast<std::uint16_t>(stored << 8));
  }
  static XYLEM_DEVICE Stored store(Value value) {
    constexpr std::uint32_t kTooLarge = (127u + 16u) << 23;  // 2^16, which rounds to infinity.
    const auto all = bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = all & 0x7FFFFFFFu;
    const std::uint32_t bits = rounded<5, 2>(magnitude < kTooLarge ? magnitude : kTooLarge);
    return static_cast<Stored>(is_nan(value) ? 0x7Fu : bits | (all >> 24 & 0x80u));
  }

  /// The instruction of store_pair() makes no infinities: it stores the greatest number in their
  /// place. So a value that rounds to an infinity is not plain.
  static XYLEM_DEVICE bool is_plain(Value value) {
    constexpr float kRoundsToInfinity = 61440.0f;
    return -kRoundsToInfinity < value && value < kRoundsToInfinity;
  }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  static XYLEM_DEVICE void load_pair(std::uint32_t pair, Value* values) {
    std::uint32_t halves;
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(static_cast<std::uint16_t>(pair)));
    Float16::load_both(halves, values);
  }
  static XYLEM_DEVICE std::uint16_t store_pair(Value first, Value second) {
    std::uint16_t pair;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
    return pair;
  }
#endif
};

/// E4M3 has no infinity. Its NaN has all bits set, with either sign. A value that is too large
/// becomes ±448.
struct Float8E4M3 {
  using Stored = std::uint8_t;
  using Value = float;

  static XYLEM_DEVICE Value load(Stored stored) {
    // Exponent and mantissa are those of an fp16 whose value is smaller by the factor 2^8, due to
    // the different biases. This also holds for subnormals.
    const std::uint32_t magnitude = stored & 0x7Fu;
    const std::uint32_t half =
        magnitude == 0x7Fu ? 0x7E00u : (stored & 0x80u) << 8 | magnitude << 7;
    return Float16::load(static_cast<std::uint16_t>(half)) * 256.0f;
  }
  static XYLEM_DEVICE Stored store(Value value) {
    constexpr std::uint32_t kGreatest = 0x43E00000u;  // 448
    const auto all = bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = all & 0x7FFFFFFFu;
    const std::uint32_t bits = rounded<4, 3>(magnitude < kGreatest ? magnitude : kGreatest);
    return static_cast<Stored>(is_nan(value) ? 0x7Fu : bits | (all >> 24 & 0x80u));
  }

  static XYLEM_DEVICE bool is_plain(Value value) { return !is_nan(value); }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  static XYLEM_DEVICE void load_pair(std::uint32_t pair, Value* values) {
    std::uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<std::uint16_t>(pair)));
    Float16::load_both(halves, values);
  }
  static XYLEM_DEVICE std::uint16_t store_pair(Value first, Value second) {
    std::uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
    return pair;
  }
#endif
};

// Operations. bool needs no case of its own: after conversion to bool, a sum is a logical or, and a
// product is a logical and.

struct Sum {
  template <class T>
  static XYLEM_DEVICE T combine(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return a + b;
    else return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
};

struct Product {
  template <class T>
  static XYLEM_DEVICE T combine(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return a * b;
    else return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  }
};

/// For floats, combines two selections of the lesser operand by a bitwise or. The selections differ
/// in two cases only. If both operands are zeros, the or is -0 if either is -0. If one operand is
/// NaN, the selections are b and a, and an or with the bits of a NaN is a NaN.
struct Min {
  template <class T>
  static XYLEM_DEVICE T combine(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return bit_cast<T>(bit_cast<Bits<T>>(a < b ? a : b) | bit_cast<Bits<T>>(b < a ? b : a));
    } else {
      return b < a ? b : a;
    }
  }
};

struct Max {
  template <class T>
  static XYLEM_DEVICE T combine(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return -Min::combine(-a, -b);
    else return a < b ? b : a;
  }
};

struct And {
  template <class T>
  static XYLEM_DEVICE T combine(T a, T b) {
    return static_cast<T>(a & b);
  }
};

struct Or {
  template <class T>
  static XYLEM_DEVICE T combine(T a, T b) {
    return static_cast<T>(a | b);
  }
};

struct Xor {
  template <class T>
  static XYLEM_DEVICE T combine(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

// Operations that end a reduction. They modify the `Lanes` values of a Pack.

struct Keep {
  template <std::uint32_t Lanes, class T>
  XYLEM_DEVICE void apply(T* /*values*/) const {}
};

template <class Value>
struct MultiplyBy {
  Value factor;

  template <std::uint32_t Lanes>
  XYLEM_DEVICE void apply(Value* values) const {
    XYLEM_PRAGMA(unroll) for (std::uint32_t i = 0; i < Lanes; ++i) values[i] = values[i] * factor;
  }
};

/// Divides. Quotients of floats are rounded to nearest even, quotients of integers are truncated
/// toward zero.
template <class Value>
struct DivideBy {
  std::uint32_t divisor;

  template <std::uint32_t Lanes>
  XYLEM_DEVICE void apply(Value* values) const {
    if (divisor <= 1) return;
    if constexpr (std::is_floating_point_v<Value>) {
      const auto d = static_cast<Value>(divisor);
      if ((divisor & (divisor - 1)) == 0) {
        // The reciprocal of a power of two is exact, so the product has the bits of the quotient.
        // The reciprocal's exponent is that of the divisor, mirrored at the exponent of 1.
        constexpr auto kTwice = bit_cast<Bits<Value>>(Value{1}) * 2;
        const MultiplyBy<Value> multiply{bit_cast<Value>(kTwice - bit_cast<Bits<Value>>(d))};
        return multiply.template apply<Lanes>(values);
      }
      XYLEM_PRAGMA(unroll) for (std::uint32_t i = 0; i < Lanes; ++i) values[i] = values[i] / d;
    } else {
      const std::uint32_t inverse = 0xFFFFFFFFu / divisor + 1;  // 2^32 / divisor, rounded up.
      XYLEM_PRAGMA(unroll) for (std::uint32_t i = 0; i < Lanes; ++i) {
        // Divides the magnitude, since a signed type of 32 bits cannot hold every divisor.
        using Magnitude = Wrapping<Value>;
        const bool is_negative = std::is_signed_v<Value> && values[i] < Value{};
        // NOLINTNEXTLINE(bugprone-signed-char-misuse): the sign is kept, and removed below
        const auto value = static_cast<Magnitude>(values[i]);
        const Magnitude result = quotient(is_negative ? Magnitude{} - value : value, inverse);
        values[i] = static_cast<Value>(is_negative ? Magnitude{} - result : result);
      }
    }
  }

 private:
  template <class Magnitude>
  XYLEM_DEVICE Magnitude quotient(Magnitude magnitude, std::uint32_t inverse) const {
    if constexpr (sizeof(Value) > 2) {
      return magnitude / divisor;
    } else {
      // magnitude · inverse / 2^32 exceeds the exact quotient by less than 2^-16, since the
      // magnitude is below 2^16. The exact quotient lies at least 1 / divisor below the next
      // integer. So both have the same integer part if the divisor is below 2^16. Otherwise both
      // are below 1.
      return static_cast<Magnitude>(std::uint64_t{magnitude} * inverse >> 32);
    }
  }
};

}  // namespace xylem::execution::cuda
