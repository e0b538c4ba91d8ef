// SPDX-License-Identifier: Apache-2.0
//
// Selection: which of the requested operations can be measured with the given options and number of
// ranks. If the user has named an operation that cannot be measured, this is an error. With `all`,
// such an operation is left out, with a reason.
#pragma once

#include "bench/options.h"
#include "xylem/base/status.h"

#include <cstdint>
#include <string>
#include <vector>

namespace xylem::tools {

struct Selection {
  std::vector<Operation> operations;
  /// Each with its reason, such as "send_recv: needs at least 2 ranks".
  std::vector<std::string> left_out;
};
Result<Selection> select_operations(const BenchOptions& options, std::uint32_t ranks);

/// The value for Options::algorithm that forces options.algorithm on the measured operations and on
/// no others, such as "all_reduce=ring". A value that already has this form is returned unchanged.
std::string forced_algorithms(const BenchOptions& options);

}  // namespace xylem::tools
