// SPDX-License-Identifier: Apache-2.0
//
// Communication between the ranks of a benchmark apart from the operation under test. It uses a
// communicator of its own, whose algorithms are chosen freely, so a forced algorithm affects only
// what is measured.
#pragma once

#include "xylem/base/status.h"
#include "xylem/runtime/communicator.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace xylem::tools {

/// Rank 0's `value`, on all ranks.
Result<std::uint64_t> from_first(const Communicator& control, std::uint64_t value);
/// The sum of the ranks' values.
Result<std::uint64_t> sum_of(const Communicator& control, std::uint64_t value);
/// The element-wise maximum of the ranks' values. All ranks must pass the same number of values.
Result<std::vector<double>> maximum_of(const Communicator& control, std::vector<double> values);
/// The texts of all ranks, by rank.
Result<std::vector<std::string>> texts_of(const Communicator& control, std::string_view text);

}  // namespace xylem::tools
