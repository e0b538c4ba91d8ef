// SPDX-License-Identifier: Apache-2.0
//
// Element types and reduction operations.
#pragma once

#include "xylem/base/api.h"
#include "xylem/base/status.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace xylem {

/// Element types. The enumerators' values are the C ABI's and never change.
enum class DataType : std::uint8_t {
  int8 = 0,
  uint8 = 1,
  int16 = 2,
  uint16 = 3,
  int32 = 4,
  uint32 = 5,
  int64 = 6,
  uint64 = 7,
  boolean = 8,  ///< One byte; zero is false, anything else true; results are 0 or 1.
  float16 = 9,  ///< IEEE 754 binary16.
  bfloat16 = 10,
  float32 = 11,
  float64 = 12,
  float8_e4m3 = 13,  ///< OFP8 E4M3, torch's float8_e4m3fn: no infinity, greatest number 448.
  float8_e5m2 = 14,  ///< OFP8 E5M2, torch's float8_e5m2: infinities, greatest number 57344.
};
inline constexpr std::size_t kDataTypeCount = 15;

/// Bytes of one element.
XYLEM_API std::size_t size_of(DataType type) noexcept;
/// The name of the type, such as "float32"; "bool" for DataType::boolean.
XYLEM_API std::string_view name(DataType type) noexcept;
/// Parses a name or one of the usual short forms ("fp16", "half", "bf16", "float", "double",
/// "i32").
XYLEM_API Result<DataType> parse_data_type(std::string_view text);

/// Reduction operations. The enumerators' values are the C ABI's and never change.
///
/// Integers wrap on overflow. Sums, products and averages of floats of 16 and 8 bits are computed
/// in fp32 within one reduce step and rounded once, to nearest even; `min` and `max` propagate NaN.
/// A result that is too large for its type becomes an infinity. float8_e4m3 has no infinity, so
/// such a result becomes 448 or -448, as in conversions by torch (from 2.12 on) and NCCL; only a
/// NaN becomes NaN. `avg` is the sum divided once, at the end, by the number of ranks (integers:
/// truncated toward zero). `bit_*` are defined for integers and bool. On bool, sum and max are
/// logical or, product and min are logical and, and avg is refused.
enum class RedOp : std::uint8_t {
  sum = 0,
  product = 1,
  min = 2,
  max = 3,
  avg = 4,
  bit_and = 5,
  bit_or = 6,
  bit_xor = 7,
  premul_sum =
      8,  ///< A sum; each rank first multiplies its input by its ReduceOp::factor. Floats only.
};
inline constexpr std::size_t kRedOpCount = 9;

/// The name of the operation: "sum", "prod", "min", "max", "avg", "and", "or", "xor", "premul_sum".
XYLEM_API std::string_view name(RedOp op) noexcept;
XYLEM_API Result<RedOp> parse_redop(std::string_view text);

/// A reduction and, for premul_sum, the factor of this rank.
struct ReduceOp {
  RedOp op = RedOp::sum;
  double factor = 1.0;

  ReduceOp(RedOp which = RedOp::sum) : op(which) {}  // NOLINT: an enumerator is an operation
  static ReduceOp premul_sum(double factor) {
    ReduceOp result(RedOp::premul_sum);
    result.factor = factor;
    return result;
  }
};

/// OK if `op` is defined for `type`; otherwise `invalid_argument` with the reason.
XYLEM_API Status check_reduction(RedOp op, DataType type);

}  // namespace xylem
