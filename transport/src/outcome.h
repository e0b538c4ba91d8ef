// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "xylem/transport/transport.h"

#include <vector>

namespace xylem::transport {

/// A known completion that has not been reported to the owner yet.
struct Outcome {
  Operation* operation = nullptr;
  Code code = Code::ok;
  std::uint64_t bytes = 0;
  View view{};
};
using Outcomes = std::vector<Outcome>;

}  // namespace xylem::transport
