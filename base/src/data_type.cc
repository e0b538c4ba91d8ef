// SPDX-License-Identifier: Apache-2.0
//
// Names and sizes of the element types, names of the reductions, and the check that a reduction is
// defined for a type.
#include "xylem/base/data_type.h"

#include "xylem/base/check.h"
#include "xylem/base/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <vector>

namespace xylem {
namespace {

struct TypeRow {
  std::string_view name;
  std::size_t size;
};

/// Indexed by DataType.
constexpr std::array<TypeRow, kDataTypeCount> kTypes{{
    {"int8", 1},
    {"uint8", 1},
    {"int16", 2},
    {"uint16", 2},
    {"int32", 4},
    {"uint32", 4},
    {"int64", 8},
    {"uint64", 8},
    {"bool", 1},
    {"float16", 2},
    {"bfloat16", 2},
    {"float32", 4},
    {"float64", 8},
    {"float8_e4m3", 1},
    {"float8_e5m2", 1},
}};
static_assert(kTypes[static_cast<std::size_t>(DataType::float8_e5m2)].name == "float8_e5m2");

/// Indexed by RedOp.
constexpr std::array<std::string_view, kRedOpCount> kRedOps{
    "sum", "prod", "min", "max", "avg", "and", "or", "xor", "premul_sum"};
static_assert(kRedOps[static_cast<std::size_t>(RedOp::premul_sum)] == "premul_sum");

template <typename Value>
struct Alias {
  std::string_view name;
  Value value;
};

constexpr std::array<Alias<DataType>, 23> kTypeAliases{{
    {"i8", DataType::int8},
    {"char", DataType::int8},
    {"u8", DataType::uint8},
    {"byte", DataType::uint8},
    {"i16", DataType::int16},
    {"u16", DataType::uint16},
    {"i32", DataType::int32},
    {"int", DataType::int32},
    {"u32", DataType::uint32},
    {"i64", DataType::int64},
    {"u64", DataType::uint64},
    {"boolean", DataType::boolean},
    {"fp16", DataType::float16},
    {"half", DataType::float16},
    {"bf16", DataType::bfloat16},
    {"fp32", DataType::float32},
    {"float", DataType::float32},
    {"fp64", DataType::float64},
    {"double", DataType::float64},
    {"fp8_e4m3", DataType::float8_e4m3},
    {"f8e4m3", DataType::float8_e4m3},
    {"fp8_e5m2", DataType::float8_e5m2},
    {"f8e5m2", DataType::float8_e5m2},
}};

constexpr std::array<Alias<RedOp>, 5> kRedOpAliases{{
    {"product", RedOp::product},
    {"average", RedOp::avg},
    {"bit_and", RedOp::bit_and},
    {"bit_or", RedOp::bit_or},
    {"bit_xor", RedOp::bit_xor},
}};

const TypeRow& row_of(DataType type) {
  const auto index = static_cast<std::size_t>(type);
  XYLEM_CHECK(index < kTypes.size(), index);
  return kTypes[index];
}

/// Parses one of `names`, whose index is the numeric value of the result, or one of `aliases`.
template <typename Value>
Result<Value> parse(std::string_view kind,
                    std::string_view text,
                    std::span<const std::string_view> names,
                    std::span<const Alias<Value>> aliases) {
  std::vector<std::string_view> known(names.begin(), names.end());
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (text == names[i]) return static_cast<Value>(i);
  }
  for (const Alias<Value>& alias : aliases) {
    if (text == alias.name) return alias.value;
    known.push_back(alias.name);
  }
  const std::string_view nearest = nearest_name(text, known);
  const std::string hint =
      nearest.empty() ? std::string() : fmt::format(", did you mean \"{}\"?", nearest);
  return failure(Code::invalid_argument, fmt::format("unknown {} \"{}\"{} (one of: {})", kind, text,
                                                     hint, fmt::join(names, ", ")));
}

enum class Family { integer, boolean, floating };

Family family_of(DataType type) {
  switch (type) {
    case DataType::boolean: return Family::boolean;
    case DataType::float16:
    case DataType::bfloat16:
    case DataType::float32:
    case DataType::float64:
    case DataType::float8_e4m3:
    case DataType::float8_e5m2: return Family::floating;
    default: return Family::integer;
  }
}

bool is_bitwise(RedOp op) {
  return op == RedOp::bit_and || op == RedOp::bit_or || op == RedOp::bit_xor;
}

}  // namespace

std::size_t size_of(DataType type) noexcept { return row_of(type).size; }

std::string_view name(DataType type) noexcept { return row_of(type).name; }

Result<DataType> parse_data_type(std::string_view text) {
  std::array<std::string_view, kDataTypeCount> names;
  std::ranges::transform(kTypes, names.begin(), &TypeRow::name);
  return parse<DataType>("element type", text, names, kTypeAliases);
}

std::string_view name(RedOp op) noexcept {
  const auto index = static_cast<std::size_t>(op);
  XYLEM_CHECK(index < kRedOps.size(), index);
  return kRedOps[index];
}

Result<RedOp> parse_redop(std::string_view text) {
  return parse<RedOp>("reduction", text, kRedOps, kRedOpAliases);
}

Status check_reduction(RedOp op, DataType type) {
  if (static_cast<std::size_t>(op) >= kRedOpCount) {
    return failure(
        Code::invalid_argument,
        fmt::format("{} is not a RedOp; they go from {} (0) to {} ({})", static_cast<int>(op),
                    kRedOps.front(), kRedOps.back(), kRedOpCount - 1));
  }
  if (static_cast<std::size_t>(type) >= kDataTypeCount) {
    return failure(
        Code::invalid_argument,
        fmt::format("{} is not a DataType; they go from {} (0) to {} ({})", static_cast<int>(type),
                    kTypes.front().name, kTypes.back().name, kDataTypeCount - 1));
  }
  const Family family = family_of(type);
  if (is_bitwise(op) && family == Family::floating) {
    return failure(
        Code::invalid_argument,
        fmt::format("{0} of {1}: bitwise reductions need an integer type or bool; pass the "
                    "buffer as uint{2} to combine the bits of {1}",
                    name(op), name(type), 8 * size_of(type)));
  }
  if (op == RedOp::premul_sum && family != Family::floating) {
    return failure(
        Code::invalid_argument,
        fmt::format("premul_sum of {}: its factor is a real number, so it needs a floating "
                    "type; multiply the input yourself and use sum",
                    name(type)));
  }
  if (op == RedOp::avg && family == Family::boolean) {
    return failure(Code::invalid_argument,
                   "avg of bool: a truth value has no average; use sum for \"any rank\", prod for "
                   "\"all ranks\", or pass the bytes as uint8");
  }
  return Status::ok();
}

}  // namespace xylem
