// SPDX-License-Identifier: Apache-2.0
//
// Computes values once per period in a representation that is exact for all types of a family:
// 64-bit two's complement for integers, double for floats.
#include "bench/pattern.h"

#include "xylem/base/check.h"
#include "xylem/base/hash.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>

namespace xylem::tools {
namespace {

bool is_float(DataType type) {
  return type == DataType::float16 || type == DataType::bfloat16 || type == DataType::float32 ||
         type == DataType::float64 || type == DataType::float8_e4m3 ||
         type == DataType::float8_e5m2;
}
bool is_signed_integer(DataType type) {
  return type == DataType::int8 || type == DataType::int16 || type == DataType::int32 ||
         type == DataType::int64;
}

/// All integers up to this one are exact in `type`.
std::int64_t largest_exact(DataType type) {
  switch (type) {
    case DataType::float8_e5m2: return 1 << 3;
    case DataType::float8_e4m3: return 1 << 4;
    case DataType::bfloat16: return 1 << 8;
    case DataType::float16: return 1 << 11;
    case DataType::float32: return 1 << 24;
    case DataType::float64: return std::int64_t{1} << 53;
    case DataType::int8: return std::numeric_limits<std::int8_t>::max();
    case DataType::uint8: return std::numeric_limits<std::uint8_t>::max();
    default: return std::numeric_limits<std::int16_t>::max();
  }
}

std::uint64_t noise(std::uint32_t rank, std::size_t index) {
  return combine(combine(0x78796c656dULL, rank), index);
}

/// Keeps the bits of an integer of `type`, and extends the sign if the type has one.
std::int64_t wrapped(std::uint64_t bits, DataType type) {
  const unsigned unused = 64 - 8 * static_cast<unsigned>(size_of(type));
  return is_signed_integer(type) ? static_cast<std::int64_t>(bits << unused) >> unused
                                 : static_cast<std::int64_t>(bits << unused >> unused);
}

/// Encodes a number as a float with this many exponent and fraction bits, which must represent the
/// number exactly. The number must not be subnormal; the patterns contain no such numbers.
std::uint16_t encoded(float value, unsigned exponent_bits, unsigned fraction_bits) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  if (value == 0) return 0;
  const std::uint32_t bias_difference = 127 - ((1U << (exponent_bits - 1)) - 1);
  const std::uint32_t exponent = (bits >> 23 & 0xff) - bias_difference;
  const std::uint32_t sign = bits >> 31 << (exponent_bits + fraction_bits);
  const std::uint32_t fraction = (bits & 0x7fffff) >> (23 - fraction_bits);
  return static_cast<std::uint16_t>(sign | exponent << fraction_bits | fraction);
}

void store_float(std::byte* target, double value, DataType type) {
  const auto single = static_cast<float>(value);
  // Numbers are little-endian: the first byte has all bits of an 8-bit float.
  const auto put = [&](const auto& element) { std::memcpy(target, &element, size_of(type)); };
  switch (type) {
    case DataType::float64: return put(value);
    case DataType::float32: return put(single);
    case DataType::bfloat16: return put(encoded(single, 8, 7));
    case DataType::float8_e4m3: return put(encoded(single, 4, 3));
    case DataType::float8_e5m2: return put(encoded(single, 5, 2));
    default: return put(encoded(single, 5, 10));
  }
}

std::uint64_t combined(RedOp op, DataType type, std::uint64_t a, std::uint64_t b) {
  const bool truth = type == DataType::boolean;
  const auto less = [&] {
    return type == DataType::uint64 ? a < b
                                    : static_cast<std::int64_t>(a) < static_cast<std::int64_t>(b);
  };
  switch (op) {
    case RedOp::sum:
    case RedOp::avg:
    case RedOp::premul_sum: return truth ? a | b : a + b;
    case RedOp::product: return a * b;
    case RedOp::min: return less() ? a : b;
    case RedOp::max: return less() ? b : a;
    case RedOp::bit_and: return a & b;
    case RedOp::bit_or: return a | b;
    case RedOp::bit_xor: return a ^ b;
  }
  return a;
}

}  // namespace

Pattern Pattern::moved(DataType type) { return {type, RedOp::sum, 0}; }

Pattern Pattern::reduced(DataType type, RedOp op, std::uint32_t ranks) { return {type, op, ranks}; }

std::int64_t Pattern::balanced_at(std::uint32_t rank, std::size_t index, std::int64_t limit) const {
  // All ranks begin with the same number; then, in each pair of neighbours, a part of the number is
  // moved from one rank to the other.
  const auto whole =
      static_cast<std::int64_t>(noise(0, index) % static_cast<std::uint64_t>(limit / ranks_ + 1));
  const std::uint32_t pair = rank / 2;
  if (whole == 0 || 2 * pair + 1 >= ranks_) return whole;
  const auto moved =
      static_cast<std::int64_t>(noise(pair + 1, index) % static_cast<std::uint64_t>(whole + 1));
  return rank % 2 == 0 ? whole + moved : whole - moved;
}

std::int64_t Pattern::integer_at(std::uint32_t rank, std::size_t index) const {
  const std::uint64_t bits = noise(rank, index);
  if (type_ == DataType::boolean) {
    // With many ranks, only few values are true (for a conjunction, only few are false), so that
    // both results occur.
    const bool rare = ranks_ == 0 ? bits % 2 == 0 : bits % (ranks_ + 1) == 0;
    const bool conjunction = op_ == RedOp::min || op_ == RedOp::product || op_ == RedOp::bit_and;
    return rare != conjunction ? 1 : 0;
  }
  if (ranks_ != 0 && op_ == RedOp::avg) return balanced_at(rank, index, largest_exact(type_));
  return wrapped(bits, type_);
}

double Pattern::float_at(std::uint32_t rank, std::size_t index) const {
  const std::uint64_t bits = noise(rank, index);
  const std::int64_t limit = largest_exact(type_);
  switch (op_) {
    case RedOp::avg: return static_cast<double>(balanced_at(rank, index, limit));
    case RedOp::product: {
      // The product is at most 2^8 in magnitude, with either sign.
      constexpr std::uint32_t kDoubling = 8;
      const double magnitude = rank < kDoubling && (bits & 2) != 0 ? 2 : 1;
      return (bits & 1) != 0 ? -magnitude : magnitude;
    }
    case RedOp::min:
    case RedOp::max:
      return static_cast<double>(static_cast<std::int64_t>(bits % (2 * limit + 1)) - limit);
    default: {
      // Leaves room for the factor 2 of premul_sum. If there are more ranks than integers, only few
      // ranks contribute a 1.
      const std::int64_t share = limit / 2 / ranks_;
      if (share == 0) return rank < limit / 2 ? static_cast<double>(bits % 2) : 0;
      return static_cast<double>(bits % static_cast<std::uint64_t>(share + 1));
    }
  }
}

std::vector<std::byte> Pattern::input(std::uint32_t rank) const {
  const std::size_t size = size_of(type_);
  std::vector<std::byte> period(kPeriod * size);
  for (std::size_t i = 0; i < kPeriod; ++i) {
    if (ranks_ != 0 && is_float(type_)) {
      store_float(period.data() + i * size, float_at(rank, i), type_);
    } else {
      const std::int64_t value = integer_at(rank, i);
      std::memcpy(period.data() + i * size, &value, size);  // little-endian: the low bytes
    }
  }
  return period;
}

std::int64_t Pattern::integer_result(std::size_t index) const {
  auto total = static_cast<std::uint64_t>(integer_at(0, index));
  for (std::uint32_t rank = 1; rank < ranks_; ++rank) {
    total = combined(op_, type_, total, static_cast<std::uint64_t>(integer_at(rank, index)));
  }
  if (op_ == RedOp::avg) total /= ranks_;  // never negative: see balanced_at()
  return wrapped(total, type_);
}

double Pattern::float_result(std::size_t index) const {
  double total = reduce_op(0).factor * float_at(0, index);
  for (std::uint32_t rank = 1; rank < ranks_; ++rank) {
    const double value = reduce_op(rank).factor * float_at(rank, index);
    switch (op_) {
      case RedOp::product: total *= value; break;
      case RedOp::min: total = std::min(total, value); break;
      case RedOp::max: total = std::max(total, value); break;
      default: total += value;
    }
  }
  return op_ == RedOp::avg ? total / ranks_ : total;
}

std::vector<std::byte> Pattern::result() const {
  XYLEM_CHECK(ranks_ != 0);
  const std::size_t size = size_of(type_);
  std::vector<std::byte> period(kPeriod * size);
  for (std::size_t i = 0; i < kPeriod; ++i) {
    if (is_float(type_)) {
      store_float(period.data() + i * size, float_result(i), type_);
    } else {
      const std::int64_t value = integer_result(i);
      std::memcpy(period.data() + i * size, &value, size);
    }
  }
  return period;
}

ReduceOp Pattern::reduce_op(std::uint32_t rank) const {
  return op_ == RedOp::premul_sum ? ReduceOp::premul_sum(rank % 2 == 0 ? 1 : 2) : ReduceOp(op_);
}

void fill(std::byte* target,
          std::size_t from,
          std::size_t count,
          std::span<const std::byte> period,
          bool inverted) {
  const std::size_t size = period.size() / Pattern::kPeriod;
  std::vector<std::byte> values(period.begin(), period.end());
  if (inverted) std::ranges::transform(values, values.begin(), std::bit_not<>());
  for (std::size_t done = 0; done < count;) {
    const std::size_t at = (from + done) % Pattern::kPeriod;
    const std::size_t run = std::min(count - done, Pattern::kPeriod - at);
    std::memcpy(target + done * size, values.data() + at * size, run * size);
    done += run;
  }
}

std::uint64_t count_wrong(const std::byte* data,
                          std::size_t from,
                          std::size_t count,
                          std::span<const std::byte> period) {
  const std::size_t size = period.size() / Pattern::kPeriod;
  std::uint64_t wrong = 0;
  for (std::size_t done = 0; done < count;) {
    const std::size_t at = (from + done) % Pattern::kPeriod;
    const std::size_t run = std::min(count - done, Pattern::kPeriod - at);
    const std::byte* found = data + done * size;
    const std::byte* expected = period.data() + at * size;
    if (std::memcmp(found, expected, run * size) != 0) {
      for (std::size_t i = 0; i < run; ++i) {
        if (std::memcmp(found + i * size, expected + i * size, size) != 0) ++wrong;
      }
    }
    done += run;
  }
  return wrong;
}

}  // namespace xylem::tools
