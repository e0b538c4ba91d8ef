// SPDX-License-Identifier: Apache-2.0
//
// Pattern: the values that ranks put in and what must come out. A rank's input repeats after a
// prime number of elements, so one period tells the whole buffer, and data that lands in a wrong
// place shows.
//
// Every value, every partial result in any order, and every final result is exact in its type, so
// results are compared bit by bit: integers use all their bits and wrap; floats are integers small
// enough.
#pragma once

#include "xylem/runtime/types.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace xylem::tools {

class Pattern {
 public:
  /// No size of a sweep and no alignment is a multiple of it.
  static constexpr std::size_t kPeriod = 4093;

  /// What ranks that move data put in.
  static Pattern moved(DataType type);
  /// What `ranks` ranks that reduce it by `op` put in. Precondition: check_reduction(op, type) is
  /// OK.
  static Pattern reduced(DataType type, RedOp op, std::uint32_t ranks);

  /// One period of a rank's input.
  std::vector<std::byte> input(std::uint32_t rank) const;
  /// One period of the result. Precondition: made by reduced().
  std::vector<std::byte> result() const;
  /// The reduction as `rank` calls it.
  ReduceOp reduce_op(std::uint32_t rank) const;

  DataType type() const noexcept { return type_; }

 private:
  Pattern(DataType type, RedOp op, std::uint32_t ranks) : type_(type), op_(op), ranks_(ranks) {}

  std::int64_t integer_at(std::uint32_t rank, std::size_t index) const;
  double float_at(std::uint32_t rank, std::size_t index) const;
  std::int64_t integer_result(std::size_t index) const;
  double float_result(std::size_t index) const;
  /// A value for an average: its sum over ranks is `ranks` times a whole number.
  std::int64_t balanced_at(std::uint32_t rank, std::size_t index, std::int64_t limit) const;

  DataType type_;
  RedOp op_;
  std::uint32_t ranks_;  ///< 0: data is only moved.
};

/// Fills `count` elements from element `from` of an endless repetition of `period`; with every bit
/// inverted if `inverted`, so that nothing right is there before a call.
void fill(std::byte* target,
          std::size_t from,
          std::size_t count,
          std::span<const std::byte> period,
          bool inverted = false);

/// Elements that differ from the same.
std::uint64_t count_wrong(const std::byte* data,
                          std::size_t from,
                          std::size_t count,
                          std::span<const std::byte> period);

}  // namespace xylem::tools
