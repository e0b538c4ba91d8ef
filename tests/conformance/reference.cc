// SPDX-License-Identifier: Apache-2.0
#include "conformance/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <sstream>

namespace xylem::test {
namespace {

using collectives::Collective;

bool is_signed(DataType type) {
  switch (type) {
    case DataType::uint8:
    case DataType::uint16:
    case DataType::uint32:
    case DataType::uint64:
    case DataType::boolean: return false;
    default: return true;
  }
}

template <typename T>
double load_as(const std::byte* element) {
  T value;
  std::memcpy(&value, element, sizeof value);
  return static_cast<double>(value);
}

template <typename T>
void store_as(std::byte* element, double value) {
  const T typed = static_cast<T>(value);
  std::memcpy(element, &typed, sizeof typed);
}

/// Converts a float with the given numbers of exponent and mantissa bits to a double.
double decode(std::uint32_t bits, int exponent_bits, int mantissa_bits) {
  const std::uint32_t mantissa = bits & ((1U << mantissa_bits) - 1);
  const int exponent = static_cast<int>((bits >> mantissa_bits) & ((1U << exponent_bits) - 1));
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                    : std::ldexp((1U << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
  return (bits >> (exponent_bits + mantissa_bits)) != 0 ? -magnitude : magnitude;
}

/// Converts a double to the nearest float with the given numbers of exponent and mantissa bits,
/// ties to even. The value must be zero or in the normal range. In float8_e4m3, normal numbers
/// include the largest exponent, which other types reserve for infinities.
std::uint32_t encode(double value, int exponent_bits, int mantissa_bits) {
  const std::uint32_t sign = std::signbit(value) ? 1U << (exponent_bits + mantissa_bits) : 0;
  if (value == 0) return sign;
  int exponent = 0;
  const double fraction = std::frexp(std::abs(value), &exponent);  // in [0.5, 1)
  double mantissa = std::nearbyint(std::ldexp(fraction, mantissa_bits + 1));
  if (mantissa == std::ldexp(1.0, mantissa_bits + 1)) {
    mantissa /= 2;
    ++exponent;
  }
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const auto biased = static_cast<std::uint32_t>(exponent - 1 + bias);
  return sign | (biased << mantissa_bits) |
         (static_cast<std::uint32_t>(mantissa) & ((1U << mantissa_bits) - 1));
}

bool is_float8(DataType type) {
  return type == DataType::float8_e4m3 || type == DataType::float8_e5m2;
}

double fold(RedOp op, double a, double b) {
  const auto bits = [](double x) { return static_cast<std::uint64_t>(x); };
  switch (op) {
    case RedOp::product: return a * b;
    case RedOp::min: return std::min(a, b);
    case RedOp::max: return std::max(a, b);
    case RedOp::bit_and: return static_cast<double>(bits(a) & bits(b));
    case RedOp::bit_or: return static_cast<double>(bits(a) | bits(b));
    case RedOp::bit_xor: return static_cast<double>(bits(a) ^ bits(b));
    case RedOp::sum:
    case RedOp::avg:
    case RedOp::premul_sum: break;
  }
  return a + b;
}

double reduced(const Case& one, std::uint32_t ranks, std::uint64_t i) {
  const auto term = [&](std::uint32_t rank) {
    const double value = input_value(one, rank, i);
    return one.op == RedOp::premul_sum ? value * premul_factor(rank) : value;
  };
  double result = term(0);
  for (std::uint32_t rank = 1; rank < ranks; ++rank) result = fold(one.op, result, term(rank));
  if (one.type == DataType::boolean && one.op != RedOp::bit_xor) result = result != 0 ? 1 : 0;
  if (one.op != RedOp::avg) return result;
  result /= ranks;
  switch (one.type) {
    case DataType::float8_e4m3:
    case DataType::float8_e5m2:
    case DataType::float16:
    case DataType::bfloat16:
    case DataType::float32: {
      // The quotient is rounded to float32, and then to the element type.
      std::byte element[sizeof(float)];
      store(one.type, element, static_cast<float>(result));
      return load(one.type, element);
    }
    case DataType::float64: return result;
    default: return std::trunc(result);
  }
}

std::uint64_t sum_of_counts(const Case& one, std::uint32_t parts) {
  std::uint64_t sum = 0;
  for (std::uint32_t part = 0; part < parts; ++part) sum += uneven_count(one, part);
  return sum;
}

/// The part of an uneven buffer that contains element i, and the element's index in this part.
std::pair<std::uint32_t, std::uint64_t> locate(std::uint64_t i, const auto& count_of_part) {
  std::uint32_t part = 0;
  while (i >= count_of_part(part)) i -= count_of_part(part++);
  return {part, i};
}

}  // namespace

std::string describe(const Case& one) {
  std::ostringstream out;
  out << name(one.collective) << (one.uneven ? "_v " : " ") << name(one.type) << ' ' << name(one.op)
      << " count " << one.count << " root " << one.root
      << (one.in_place ? " in place" : " out of place");
  return out.str();
}

double load(DataType type, const std::byte* element) {
  switch (type) {
    case DataType::int8: return load_as<std::int8_t>(element);
    case DataType::uint8:
    case DataType::boolean: return load_as<std::uint8_t>(element);
    case DataType::float8_e4m3:
      return decode(static_cast<std::uint32_t>(load_as<std::uint8_t>(element)), 4, 3);
    case DataType::float8_e5m2:
      return decode(static_cast<std::uint32_t>(load_as<std::uint8_t>(element)), 5, 2);
    case DataType::int16: return load_as<std::int16_t>(element);
    case DataType::uint16: return load_as<std::uint16_t>(element);
    case DataType::int32: return load_as<std::int32_t>(element);
    case DataType::uint32: return load_as<std::uint32_t>(element);
    case DataType::int64: return load_as<std::int64_t>(element);
    case DataType::uint64: return load_as<std::uint64_t>(element);
    case DataType::float16:
      return decode(static_cast<std::uint32_t>(load_as<std::uint16_t>(element)), 5, 10);
    case DataType::bfloat16:
      return decode(static_cast<std::uint32_t>(load_as<std::uint16_t>(element)), 8, 7);
    case DataType::float32: return load_as<float>(element);
    case DataType::float64: return load_as<double>(element);
  }
  return 0;
}

void store(DataType type, std::byte* element, double value) {
  switch (type) {
    case DataType::int8: return store_as<std::int8_t>(element, value);
    case DataType::uint8:
    case DataType::boolean: return store_as<std::uint8_t>(element, value);
    case DataType::float8_e4m3: return store_as<std::uint8_t>(element, encode(value, 4, 3));
    case DataType::float8_e5m2: return store_as<std::uint8_t>(element, encode(value, 5, 2));
    case DataType::int16: return store_as<std::int16_t>(element, value);
    case DataType::uint16: return store_as<std::uint16_t>(element, value);
    case DataType::int32: return store_as<std::int32_t>(element, value);
    case DataType::uint32: return store_as<std::uint32_t>(element, value);
    case DataType::int64: return store_as<std::int64_t>(element, value);
    case DataType::uint64: return store_as<std::uint64_t>(element, value);
    case DataType::float16: return store_as<std::uint16_t>(element, encode(value, 5, 10));
    case DataType::bfloat16: return store_as<std::uint16_t>(element, encode(value, 8, 7));
    case DataType::float32: return store_as<float>(element, value);
    case DataType::float64: return store_as<double>(element, value);
  }
}

double premul_factor(std::uint32_t rank) { return rank % 2 == 0 ? 0.5 : 2.0; }

std::uint64_t uneven_count(const Case& one, std::uint32_t part) {
  // Some parts are empty, and neighbouring parts have different sizes.
  return part % 3 == 1 ? 0 : one.count + part % 4;
}

std::uint64_t uneven_count(const Case& one, std::uint32_t from, std::uint32_t to) {
  return (from + 2 * to) % 4 == 3 ? 0 : one.count + (3 * from + to) % 5;
}

double input_value(const Case& one, std::uint32_t rank, std::uint64_t i) {
  if (one.type == DataType::boolean) return static_cast<double>((rank + i * i + i / 3) % 2);
  if (!reduces(one.collective)) {
    const std::uint64_t number = (rank * 31 + i * 7) % 120;
    if (!is_float8(one.type)) return static_cast<double>(number);
    // A float8 has too few digits for all numbers up to 120. The bit patterns used instead are 120
    // different normal numbers.
    const auto element = static_cast<std::byte>(number % 112 + 8 + (number < 8 ? 0x80 : 0));
    return load(one.type, &element);
  }
  if (is_float8(one.type) && one.op != RedOp::product) {
    // Values of -1, 0 and 1, so that float8 sums over 8 ranks are exact.
    const double value = static_cast<double>((rank * 7 + i * 2) % 3) - 1;
    return one.op == RedOp::premul_sum ? value / premul_factor(rank) : value;
  }
  const double low = is_signed(one.type) ? 2 : 0;
  switch (one.op) {
    case RedOp::product: return (rank + i) % 3 == 0 ? 2 : 1;
    case RedOp::bit_and: return static_cast<double>(0x40 | ((rank * 37 + i * 11) & 0x3f));
    case RedOp::bit_or:
    case RedOp::bit_xor: return static_cast<double>((rank * 37 + i * 11) & 0x7f);
    default: return static_cast<double>((rank * 7 + i * 3) % 5) - low;
  }
}

double expected_value(const Case& one, std::uint32_t ranks, std::uint32_t rank, std::uint64_t i) {
  const std::uint64_t count = one.count;
  switch (one.collective) {
    case Collective::all_reduce:
    case Collective::reduce: return reduced(one, ranks, i);
    case Collective::reduce_scatter:
      return reduced(one, ranks, i + (one.uneven ? sum_of_counts(one, rank) : rank * count));
    case Collective::broadcast: return input_value(one, one.root, i);
    case Collective::all_gather:
      if (one.uneven) {
        const auto [part, place] = locate(i, [&](std::uint32_t p) { return uneven_count(one, p); });
        return input_value(one, part, place);
      }
      [[fallthrough]];
    case Collective::gather:
      return input_value(one, static_cast<std::uint32_t>(i / count), i % count);
    case Collective::scatter: return input_value(one, one.root, rank * count + i);
    case Collective::all_to_all: {
      if (!one.uneven)
        return input_value(one, static_cast<std::uint32_t>(i / count), rank * count + i % count);
      const auto [from, place] =
          locate(i, [&](std::uint32_t p) { return uneven_count(one, p, rank); });
      std::uint64_t before = 0;
      for (std::uint32_t to = 0; to < rank; ++to) before += uneven_count(one, from, to);
      return input_value(one, from, before + place);
    }
    case Collective::barrier: break;
  }
  return 0;
}

std::uint64_t input_elements(const Case& one, std::uint32_t ranks, std::uint32_t rank) {
  switch (one.collective) {
    case Collective::barrier: return 0;
    case Collective::broadcast: return rank == one.root ? one.count : 0;
    case Collective::scatter: return rank == one.root ? ranks * one.count : 0;
    case Collective::all_gather: return one.uneven ? uneven_count(one, rank) : one.count;
    case Collective::reduce_scatter:
      return one.uneven ? sum_of_counts(one, ranks) : ranks * one.count;
    case Collective::all_to_all: {
      if (!one.uneven) return ranks * one.count;
      std::uint64_t sum = 0;
      for (std::uint32_t to = 0; to < ranks; ++to) sum += uneven_count(one, rank, to);
      return sum;
    }
    default: return one.count;
  }
}

std::uint64_t output_elements(const Case& one, std::uint32_t ranks, std::uint32_t rank) {
  switch (one.collective) {
    case Collective::barrier: return 0;
    case Collective::reduce: return rank == one.root ? one.count : 0;
    case Collective::gather: return rank == one.root ? ranks * one.count : 0;
    case Collective::all_gather: return one.uneven ? sum_of_counts(one, ranks) : ranks * one.count;
    case Collective::reduce_scatter: return one.uneven ? uneven_count(one, rank) : one.count;
    case Collective::all_to_all: {
      if (!one.uneven) return ranks * one.count;
      std::uint64_t sum = 0;
      for (std::uint32_t from = 0; from < ranks; ++from) sum += uneven_count(one, from, rank);
      return sum;
    }
    default: return one.count;
  }
}

std::vector<Case> full_product(Collective collective, std::uint32_t ranks) {
  if (collective == Collective::barrier) return {Case{collective}};
  std::vector<std::uint32_t> roots{0};
  if (has_root(collective) && ranks > 1) roots.push_back(ranks - 1);
  if (has_root(collective) && ranks > 2) roots.push_back(ranks / 2);
  const bool has_uneven = collective == Collective::all_gather ||
                          collective == Collective::reduce_scatter ||
                          collective == Collective::all_to_all;
  std::vector<Case> cases;
  for (std::size_t type = 0; type < kDataTypeCount; ++type) {
    for (std::size_t op = 0; op < kRedOpCount; ++op) {
      Case one;
      one.collective = collective;
      one.type = static_cast<DataType>(type);
      one.op = static_cast<RedOp>(op);
      if (reduces(collective) ? !check_reduction(one.op, one.type) : op > 0) continue;
      // No element, one element, fewer elements than ranks, a count that is not a multiple of the
      // ranks, and several slices.
      for (const std::uint64_t count : {0, 1, 3, 193, 1601}) {
        for (const std::uint32_t root : roots) {
          for (const bool uneven : {false, true}) {
            if (uneven && !has_uneven) continue;
            for (const bool in_place : {false, true}) {
              if (in_place && uneven && collective == Collective::all_to_all) continue;
              one.count = count;
              one.root = root;
              one.uneven = uneven;
              one.in_place = in_place;
              cases.push_back(one);
            }
          }
        }
      }
    }
  }
  return cases;
}

std::vector<Case> sample(Collective collective, std::uint32_t ranks, std::size_t most) {
  auto cases = full_product(collective, ranks);
  if (cases.size() <= most) return cases;
  std::mt19937 shuffle(ranks);
  std::shuffle(cases.begin(), cases.end(), shuffle);
  cases.resize(most);
  return cases;
}

}  // namespace xylem::test
