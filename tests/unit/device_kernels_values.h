// SPDX-License-Identifier: Apache-2.0
//
// Elements for tests of the device kernels: special values of each type, and values whose sums are
// rounded.
#pragma once

#include "xylem/base/data_type.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

namespace xylem::execution::cuda {

/// Divisors of averages.
inline constexpr std::uint32_t kDivisors[] = {1, 2,   64,     2'147'483'648,
                                              3, 255, 65'537, 4'294'967'295};

/// A floating-point format: the numbers of bits of its mantissa and its exponent.
struct Format {
  int mantissa, exponent;

  std::uint64_t unit() const { return std::uint64_t{1} << mantissa; }
  /// E4M3 has no infinity. In E4M3, these bits are the number 256.
  std::uint64_t infinity() const { return ((std::uint64_t{1} << exponent) - 1) << mantissa; }
  std::uint64_t sign() const { return std::uint64_t{1} << (mantissa + exponent); }
  std::uint64_t one() const { return ((std::uint64_t{1} << (exponent - 1)) - 1) << mantissa; }

  /// Zeros, subnormals, the smallest and the largest numbers, infinities and NaNs.
  std::vector<std::uint64_t> special() const {
    std::vector<std::uint64_t> values = {unit() / 2, one() / 2, infinity() + unit() / 2};
    for (const std::uint64_t value :
         {std::uint64_t{0}, unit(), one(), one() + unit(), infinity()}) {
      for (const int step : {-1, 0, 1}) values.push_back((value + step) & (sign() - 1));
    }
    for (std::size_t i = 0, n = values.size(); i < n; ++i) values.push_back(values[i] | sign());
    return values;
  }
  /// Random values. Most have similar magnitudes, so that sums are rounded.
  std::uint64_t random(std::mt19937_64& random) const {
    const std::uint64_t any = random();
    if (random() % 8 == 0) return any;
    return (any & sign()) | (one() + (any % 8) * unit() - 4 * unit()) | (any >> 8 & (unit() - 1));
  }
};

inline std::optional<Format> format_of(DataType type) {
  switch (type) {
    case DataType::float8_e4m3: return Format{3, 4};
    case DataType::float8_e5m2: return Format{2, 5};
    case DataType::float16: return Format{10, 5};
    case DataType::bfloat16: return Format{7, 8};
    case DataType::float32: return Format{23, 8};
    case DataType::float64: return Format{52, 11};
    default: return std::nullopt;
  }
}

inline std::uint64_t random_element(DataType type, std::mt19937_64& random) {
  if (const auto format = format_of(type)) {
    const auto special = format->special();
    return random() % 4 == 0 ? special[random() % special.size()] : format->random(random);
  }
  switch (random() % 8) {
    case 0: return 0 - random() % 3;
    case 1: return (random() % 3 - 1) + (std::uint64_t{1} << (8 * size_of(type) - 1));
    case 2: return 0;
    default: return random();
  }
}

}  // namespace xylem::execution::cuda
