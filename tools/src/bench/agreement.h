// SPDX-License-Identifier: Apache-2.0
//
// What the ranks of a benchmark tell each other besides the operation under test. It goes over a
// communicator of its own, with algorithms chosen freely, so a forced algorithm concerns only what
// is measured.
#pragma once

#include "xylem/base/status.h"
#include "xylem/runtime/communicator.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace xylem::tools {

/// Rank 0's `value` on all ranks.
Result<std::uint64_t> from_first(const Communicator& control, std::uint64_t value);
/// The sum of the ranks' values.
Result<std::uint64_t> sum_of(const Communicator& control, std::uint64_t value);
/// The element-wise maximum of the ranks' values, which are equally many.
Result<std::vector<double>> maximum_of(const Communicator& control, std::vector<double> values);
/// Every rank's text, by rank.
Result<std::vector<std::string>> texts_of(const Communicator& control, std::string_view text);

}  // namespace xylem::tools
