// SPDX-License-Identifier: Apache-2.0
//
// Pattern: the input values of ranks and the results that must follow. A rank's input repeats after
// a prime number of elements. So one period describes the whole buffer, and data in a wrong place
// is detected.
//
// Every value, every partial result in any order, and every final result is exact in its type, so
// results are compared bit by bit. Integers use all their bits and wrap around; floats are small
// integers.
#pragma once

#include "xylem/runtime/types.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace xylem::tools {

class Pattern {
 public:
  /// No size of a sweep and no alignment is a multiple of this number.
  static constexpr std::size_t kPeriod = 4093;

  /// Input data for operations that transfer data.
  static Pattern moved(DataType type);
  /// Input data for a reduction by `op` over `ranks` ranks. Precondition: check_reduction(op, type)
  /// is OK.
  static Pattern reduced(DataType type, RedOp op, std::uint32_t ranks);

  /// One period of a rank's input.
  std::vector<std::byte> input(std::uint32_t rank) const;
  /// One period of the result. Precondition: made by reduced().
  std::vector<std::byte> result() const;
  /// The reduction that `rank` passes to the call.
  ReduceOp reduce_op(std::uint32_t rank) const;

  DataType type() const noexcept { return type_; }

 private:
  Pattern(DataType type, RedOp op, std::uint32_t ranks) : type_(type), op_(op), ranks_(ranks) {}

  std::int64_t integer_at(std::uint32_t rank, std::size_t index) const;
  double float_at(std::uint32_t rank, std::size_t index) const;
  std::int64_t integer_result(std::size_t index) const;
  double float_result(std::size_t index) const;
  /// A value for an average: the sum over all ranks is a multiple of `ranks`.
  std::int64_t balanced_at(std::uint32_t rank, std::size_t index, std::int64_t limit) const;

  DataType type_;
  RedOp op_;
  std::uint32_t ranks_;  ///< 0: data is not reduced.
};

/// Fills `count` elements, beginning with element `from` of an endless repetition of `period`. With
/// `inverted`, every bit is inverted, so that every element is wrong before the call.
void fill(std::byte* target,
          std::size_t from,
          std::size_t count,
          std::span<const std::byte> period,
          bool inverted = false);

/// The number of elements that differ from those that fill() writes for the same `from`, `count`
/// and `period`.
std::uint64_t count_wrong(const std::byte* data,
                          std::size_t from,
                          std::size_t count,
                          std::span<const std::byte> period);

}  // namespace xylem::tools
