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

/// Reports all outcomes; returns their number. Completion callbacks may post, cancel and close;
/// outcomes that this produces are left for the next call. `reporting` is scratch space.
inline unsigned report(Outcomes& outcomes, Outcomes& reporting) {
  reporting.swap(outcomes);
  for (const Outcome& outcome : reporting) {
    outcome.operation->code = outcome.code;
    outcome.operation->bytes = outcome.bytes;
    outcome.operation->view = outcome.view;
    outcome.operation->done(*outcome.operation);
  }
  const auto count = static_cast<unsigned>(reporting.size());
  reporting.clear();
  return count;
}

}  // namespace xylem::transport
