// SPDX-License-Identifier: Apache-2.0
#include "values.h"

#include <fmt/format.h>

#include <utility>

namespace xylem::c {
namespace {

template <typename Enumerator>
constexpr bool same(int value, Enumerator enumerator) {
  return value == static_cast<int>(enumerator);
}

static_assert(same(XYLEM_OK, Code::ok) && same(XYLEM_INVALID_ARGUMENT, Code::invalid_argument) &&
              same(XYLEM_UNSUPPORTED, Code::unsupported) &&
              same(XYLEM_EXHAUSTED, Code::exhausted) && same(XYLEM_TIMED_OUT, Code::timed_out) &&
              same(XYLEM_CANCELLED, Code::cancelled) && same(XYLEM_PEER_LOST, Code::peer_lost) &&
              same(XYLEM_LINK_LOST, Code::link_lost) &&
              same(XYLEM_DEVICE_LOST, Code::device_lost) && same(XYLEM_MISMATCH, Code::mismatch) &&
              same(XYLEM_BAD_SCHEDULE, Code::bad_schedule) && same(XYLEM_BUSY, Code::busy) &&
              same(XYLEM_INTERNAL, Code::internal) && same(XYLEM_INTERNAL, xylem::kLastCode));

static_assert(same(XYLEM_INT8, DataType::int8) && same(XYLEM_UINT8, DataType::uint8) &&
              same(XYLEM_INT16, DataType::int16) && same(XYLEM_UINT16, DataType::uint16) &&
              same(XYLEM_INT32, DataType::int32) && same(XYLEM_UINT32, DataType::uint32) &&
              same(XYLEM_INT64, DataType::int64) && same(XYLEM_UINT64, DataType::uint64) &&
              same(XYLEM_BOOL, DataType::boolean) && same(XYLEM_FLOAT16, DataType::float16) &&
              same(XYLEM_BFLOAT16, DataType::bfloat16) && same(XYLEM_FLOAT32, DataType::float32) &&
              same(XYLEM_FLOAT64, DataType::float64) &&
              same(XYLEM_FLOAT8_E4M3, DataType::float8_e4m3) &&
              same(XYLEM_FLOAT8_E5M2, DataType::float8_e5m2));
static_assert(kDataTypeCount == XYLEM_FLOAT8_E5M2 + 1, "a type has no value in xylem_c.h");

static_assert(same(XYLEM_SUM, RedOp::sum) && same(XYLEM_PRODUCT, RedOp::product) &&
              same(XYLEM_MIN, RedOp::min) && same(XYLEM_MAX, RedOp::max) &&
              same(XYLEM_AVG, RedOp::avg) && same(XYLEM_BIT_AND, RedOp::bit_and) &&
              same(XYLEM_BIT_OR, RedOp::bit_or) && same(XYLEM_BIT_XOR, RedOp::bit_xor) &&
              same(XYLEM_PREMUL_SUM, RedOp::premul_sum));
static_assert(kRedOpCount == XYLEM_PREMUL_SUM + 1, "a reduction has no value in xylem_c.h");

bool is_data_type(xylem_data_type type) { return type >= 0 && std::cmp_less(type, kDataTypeCount); }

}  // namespace

Result<DataType> to_data_type(xylem_data_type type) {
  if (is_data_type(type)) return static_cast<DataType>(type);
  return failure(
      Code::invalid_argument,
      fmt::format(
          "{} is not a xylem_data_type; they go from XYLEM_INT8 (0) to XYLEM_FLOAT8_E5M2 ({})",
          type, kDataTypeCount - 1));
}

Result<RedOp> to_redop(xylem_redop op) {
  if (op >= 0 && std::cmp_less(op, kRedOpCount)) return static_cast<RedOp>(op);
  return failure(
      Code::invalid_argument,
      fmt::format("{} is not a xylem_redop; they go from XYLEM_SUM (0) to XYLEM_PREMUL_SUM ({})",
                  op, kRedOpCount - 1));
}

}  // namespace xylem::c

const char* xylem_status_name(xylem_status status) {
  const bool known = status == XYLEM_OK || xylem::is_error_code(status);
  // name() returns a view of a literal, so the text is null-terminated.
  return known ? xylem::name(static_cast<xylem::Code>(status)).data() : "unknown";
}

size_t xylem_data_type_size(xylem_data_type type) {
  return xylem::c::is_data_type(type) ? xylem::size_of(static_cast<xylem::DataType>(type)) : 0;
}
