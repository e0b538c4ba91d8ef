// SPDX-License-Identifier: Apache-2.0
//
// The expected results of the reduction kernels, computed for one element at a time in a wider
// type: fp64 for floats up to fp32, and unsigned 64-bit integers for integers.
#pragma once

#include "xylem/base/data_type.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

namespace xylem::execution::reference {

/// A floating-point format of `bytes` bytes: a sign bit, the exponent, then `mantissa_bits`. The
/// smallest normal number is 2^min_exponent. The other members contain the bits of positive
/// elements.
struct NarrowFormat {
  std::size_t bytes;
  int mantissa_bits;
  int min_exponent;
  std::uint16_t greatest;   ///< The greatest finite number.
  std::uint16_t overflow;   ///< Result of an overflow: infinity, or `greatest` if there is none.
  std::uint16_t quiet_nan;  ///< The only NaN that kernels store.

  std::uint16_t sign() const { return static_cast<std::uint16_t>(1 << (8 * bytes - 1)); }
  /// The number of different bit patterns.
  std::size_t values() const { return std::size_t{1} << (8 * bytes); }
};
inline constexpr NarrowFormat kFloat16{2, 10, -14, 0x7BFF, 0x7C00, 0x7E00};
inline constexpr NarrowFormat kBFloat16{2, 7, -126, 0x7F7F, 0x7F80, 0x7FC0};
inline constexpr NarrowFormat kFloat8E4M3{1, 3, -6, 0x7E, 0x7E, 0x7F};
inline constexpr NarrowFormat kFloat8E5M2{1, 2, -14, 0x7B, 0x7C, 0x7F};

inline const NarrowFormat& format_of(DataType type) {
  switch (type) {
    case DataType::float16: return kFloat16;
    case DataType::bfloat16: return kBFloat16;
    case DataType::float8_e4m3: return kFloat8E4M3;
    default: return kFloat8E5M2;
  }
}

inline bool is_nan(const NarrowFormat& format, std::uint16_t bits) {
  return (bits & (format.sign() - 1)) > format.overflow;
}

inline double widen(const NarrowFormat& format, std::uint16_t bits) {
  const int magnitude = bits & (format.sign() - 1);
  const double sign = (bits & format.sign()) != 0 ? -1.0 : 1.0;
  if (is_nan(format, bits)) return std::numeric_limits<double>::quiet_NaN();
  if (magnitude > format.greatest) return sign * std::numeric_limits<double>::infinity();
  const int implicit_one = 1 << format.mantissa_bits;
  const int exponent = magnitude >> format.mantissa_bits;
  const int mantissa = magnitude & (implicit_one - 1);
  const int scale = format.min_exponent - format.mantissa_bits;
  return sign * (exponent == 0 ? std::ldexp(mantissa, scale)
                               : std::ldexp(implicit_one + mantissa, exponent - 1 + scale));
}

/// Converts `value` to the nearest element, ties to even. The value is converted to units of the
/// last place, and nearbyint() rounds them in the default rounding mode.
inline std::uint16_t narrow(const NarrowFormat& format, double value) {
  if (std::isnan(value)) return format.quiet_nan;
  const std::uint16_t sign = std::signbit(value) ? format.sign() : 0;
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return sign | format.overflow;
  const int exponent =
      magnitude == 0 ? format.min_exponent : std::max(std::ilogb(magnitude), format.min_exponent);
  const auto units = static_cast<std::int64_t>(
      std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent)));
  // The units of a normal number include the implicit leading bit. Adding it makes the exponent
  // field 1.
  const std::int64_t bits =
      (static_cast<std::int64_t>(exponent - format.min_exponent) << format.mantissa_bits) + units;
  return static_cast<std::uint16_t>(sign | (bits > format.greatest ? format.overflow : bits));
}

/// Rounds an fp64 result to the precision in which kernels combine. For sums, products and
/// quotients of fp32, the result is rounded correctly, since fp64 has more than twice as many
/// digits.
template <typename Lane>
Lane rounded(double value) {
  return static_cast<Lane>(value);
}

template <typename Lane>
Lane combine_floats(RedOp op, Lane a, Lane b) {
  switch (op) {
    case RedOp::product: return rounded<Lane>(static_cast<double>(a) * static_cast<double>(b));
    case RedOp::min:
    case RedOp::max: {
      if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<Lane>::quiet_NaN();
      const bool want_less = op == RedOp::min;
      if (a == b) return std::signbit(a) == want_less ? a : b;
      return (a < b) == want_less ? a : b;
    }
    default: return rounded<Lane>(static_cast<double>(a) + static_cast<double>(b));
  }
}

template <typename T>
T combine_integers(RedOp op, T a, T b) {
  using Bits = std::make_unsigned_t<T>;
  const std::uint64_t x = static_cast<Bits>(a);
  const std::uint64_t y = static_cast<Bits>(b);
  switch (op) {
    case RedOp::product: return static_cast<T>(x * y);
    case RedOp::min: return b < a ? b : a;
    case RedOp::max: return a < b ? b : a;
    case RedOp::bit_and: return static_cast<T>(x & y);
    case RedOp::bit_or: return static_cast<T>(x | y);
    case RedOp::bit_xor: return static_cast<T>(x ^ y);
    default: return static_cast<T>(x + y);
  }
}

inline bool combine_booleans(RedOp op, bool a, bool b) {
  switch (op) {
    case RedOp::sum:
    case RedOp::max:
    case RedOp::bit_or: return a || b;
    case RedOp::bit_xor: return a != b;
    default: return a && b;
  }
}

template <typename T>
T at(const std::byte* from, std::size_t index) {
  T value;
  std::memcpy(&value, from + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void put(std::byte* to, std::size_t index, T value) {
  std::memcpy(to + index * sizeof(T), &value, sizeof(T));
}

/// Returns element `index`, which has one or two bytes, in the lower bits.
inline std::uint16_t narrow_at(const NarrowFormat& format,
                               const std::byte* from,
                               std::size_t index) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, from + index * format.bytes, format.bytes);
  return bits;
}

inline void put_narrow(const NarrowFormat& format,
                       std::byte* to,
                       std::size_t index,
                       std::uint16_t bits) {
  std::memcpy(to + index * format.bytes, &bits, format.bytes);
}

template <typename Lane>
Lane finished(Lane value, std::uint32_t divisor) {
  if (divisor > 1) {
    value =
        rounded<Lane>(static_cast<double>(value) / static_cast<double>(static_cast<Lane>(divisor)));
  }
  return std::isnan(value) ? std::numeric_limits<Lane>::quiet_NaN() : value;
}

template <typename T>
void reduce_integers(RedOp op,
                     std::byte* target,
                     std::span<const std::byte* const> sources,
                     std::size_t index,
                     std::uint32_t divisor) {
  T folded = at<T>(sources[0], index);
  for (const std::byte* source : sources.subspan(1)) {
    folded = combine_integers<T>(op, folded, at<T>(source, index));
  }
  using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
  if (divisor > 1) folded = static_cast<T>(static_cast<Wide>(folded) / static_cast<Wide>(divisor));
  put(target, index, folded);
}

template <typename T>
void reduce_floats(RedOp op,
                   std::byte* target,
                   std::span<const std::byte* const> sources,
                   std::size_t index,
                   std::uint32_t divisor) {
  T folded = at<T>(sources[0], index);
  for (const std::byte* source : sources.subspan(1)) {
    folded = combine_floats<T>(op, folded, at<T>(source, index));
  }
  put(target, index, finished(folded, divisor));
}

inline void reduce_narrow(RedOp op,
                          DataType type,
                          std::byte* target,
                          std::span<const std::byte* const> sources,
                          std::size_t index,
                          std::uint32_t divisor) {
  const NarrowFormat& format = format_of(type);
  const auto read = [&](const std::byte* source) {
    return static_cast<float>(widen(format, narrow_at(format, source, index)));
  };
  float folded = read(sources[0]);
  for (const std::byte* source : sources.subspan(1)) {
    folded = combine_floats<float>(op, folded, read(source));
  }
  put_narrow(format, target, index, narrow(format, finished(folded, divisor)));
}

inline void reduce_booleans(RedOp op,
                            std::byte* target,
                            std::span<const std::byte* const> sources,
                            std::size_t index) {
  bool folded = at<std::uint8_t>(sources[0], index) != 0;
  for (const std::byte* source : sources.subspan(1)) {
    folded = combine_booleans(op, folded, at<std::uint8_t>(source, index) != 0);
  }
  put(target, index, static_cast<std::uint8_t>(folded ? 1 : 0));
}

/// Sets target[index] to source[index] * factor. The factor is rounded to the precision in which
/// the kernels compute.
inline void scale(
    DataType type, std::byte* target, const std::byte* source, std::size_t index, double factor) {
  const double factor32 = static_cast<float>(factor);
  if (type == DataType::float64) {
    put(target, index, finished(at<double>(source, index) * factor, 1));
  } else if (type == DataType::float32) {
    put(target, index, finished(rounded<float>(at<float>(source, index) * factor32), 1));
  } else {
    const NarrowFormat& format = format_of(type);
    const double value = widen(format, narrow_at(format, source, index));
    put_narrow(format, target, index, narrow(format, rounded<float>(value * factor32)));
  }
}

/// Sets target[index] to the reduction of element `index` of all sources. The target overlaps no
/// source.
inline void reduce(RedOp op,
                   DataType type,
                   std::byte* target,
                   std::span<const std::byte* const> sources,
                   std::size_t index,
                   std::uint32_t divisor) {
  switch (type) {
    case DataType::int8: return reduce_integers<std::int8_t>(op, target, sources, index, divisor);
    case DataType::uint8: return reduce_integers<std::uint8_t>(op, target, sources, index, divisor);
    case DataType::int16: return reduce_integers<std::int16_t>(op, target, sources, index, divisor);
    case DataType::uint16:
      return reduce_integers<std::uint16_t>(op, target, sources, index, divisor);
    case DataType::int32: return reduce_integers<std::int32_t>(op, target, sources, index, divisor);
    case DataType::uint32:
      return reduce_integers<std::uint32_t>(op, target, sources, index, divisor);
    case DataType::int64: return reduce_integers<std::int64_t>(op, target, sources, index, divisor);
    case DataType::uint64:
      return reduce_integers<std::uint64_t>(op, target, sources, index, divisor);
    case DataType::boolean: return reduce_booleans(op, target, sources, index);
    case DataType::float32: return reduce_floats<float>(op, target, sources, index, divisor);
    case DataType::float64: return reduce_floats<double>(op, target, sources, index, divisor);
    default: return reduce_narrow(op, type, target, sources, index, divisor);
  }
}

}  // namespace xylem::execution::reference
