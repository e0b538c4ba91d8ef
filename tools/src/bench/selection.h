// SPDX-License-Identifier: Apache-2.0
//
// Selection: which of the operations asked for can be measured as asked, on so many ranks. What was
// named but does not fit is an error; of `all`, it is left out with a reason.
#pragma once

#include "bench/options.h"
#include "xylem/base/status.h"

#include <cstdint>
#include <string>
#include <vector>

namespace xylem::tools {

struct Selection {
  std::vector<Operation> operations;
  std::vector<std::string> left_out;  ///< "send_recv: needs at least 2 ranks".
};
Result<Selection> select_operations(const BenchOptions& options, std::uint32_t ranks);

/// The value of Options::algorithm that forces options.algorithm on the measured operations and on
/// no other: "all_reduce=ring". What is already of that form stays.
std::string forced_algorithms(const BenchOptions& options);

}  // namespace xylem::tools
