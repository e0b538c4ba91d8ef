// SPDX-License-Identifier: Apache-2.0
//
// The expected results of every operation, computed in double. Inputs are small numbers whose sums
// and products are exact in every type, so results are compared for equality.
#pragma once

#include "xylem/collectives/schedule.h"
#include "xylem/runtime/types.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace xylem::test {

/// One call on one communicator.
struct Case {
  collectives::Collective collective = collectives::Collective::all_reduce;
  DataType type = DataType::float32;
  RedOp op = RedOp::sum;
  /// The number of elements, as in collectives::Counts. Uneven calls derive the sizes of their
  /// parts from `count`.
  std::uint64_t count = 1;
  std::uint32_t root = 0;
  bool in_place = false;
  bool uneven = false;
};
std::string describe(const Case& one);

/// Converts an element to a number and back. This is exact for the numbers used here.
double load(DataType type, const std::byte* element);
void store(DataType type, std::byte* element, double value);

/// The factor that a rank passes to a premultiplied sum.
double premul_factor(std::uint32_t rank);
/// The number of elements of part `part` in an uneven call. For all_to_all_v, the number of
/// elements that `from` sends to `to`.
std::uint64_t uneven_count(const Case& one, std::uint32_t part);
std::uint64_t uneven_count(const Case& one, std::uint32_t from, std::uint32_t to);
/// Element i of a rank's input.
double input_value(const Case& one, std::uint32_t rank, std::uint64_t i);
/// Element i of a rank's output in a communicator of `ranks` ranks.
double expected_value(const Case& one, std::uint32_t ranks, std::uint32_t rank, std::uint64_t i);
/// The number of elements of a rank's input and output; 0 if the rank has none.
std::uint64_t input_elements(const Case& one, std::uint32_t ranks, std::uint32_t rank);
std::uint64_t output_elements(const Case& one, std::uint32_t ranks, std::uint32_t rank);

/// All cases of one collective: each type, reduction, kind of count and root, in and out of place,
/// with even and uneven parts.
std::vector<Case> full_product(collectives::Collective collective, std::uint32_t ranks);
/// At most `most` cases of full_product(). The random choice is the same each time.
std::vector<Case> sample(collectives::Collective collective, std::uint32_t ranks, std::size_t most);

}  // namespace xylem::test
