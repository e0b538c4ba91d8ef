// SPDX-License-Identifier: Apache-2.0
//
// Small collectives by which the ranks of a benchmark exchange values, apart from the operation
// under test. They run on a communicator of their own, `control`.
#pragma once

#include "xylem/base/status.h"
#include "xylem/runtime/communicator.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace xylem::tools {

/// Returns rank 0's `value` on all ranks.
Result<std::uint64_t> from_first(const Communicator& control, std::uint64_t value);
/// Returns the sum of the ranks' values.
Result<std::uint64_t> sum_of(const Communicator& control, std::uint64_t value);
/// Returns the element-wise maximum of the ranks' values. All ranks must pass the same number of
/// values.
Result<std::vector<double>> maximum_of(const Communicator& control, std::vector<double> values);
/// Returns the texts of all ranks, in the order of the ranks.
Result<std::vector<std::string>> texts_of(const Communicator& control, std::string_view text);

}  // namespace xylem::tools
