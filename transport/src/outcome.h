// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "xylem/transport/transport.h"

#include <vector>

namespace xylem::transport {

/// A completion that the transport has not reported to its owner yet.
struct Outcome {
  Operation* operation = nullptr;
  Code code = Code::ok;
  std::uint64_t bytes = 0;
  View view{};
};
using Outcomes = std::vector<Outcome>;

/// Calls `done` for all outcomes, and returns their number. `done` may call the transport to post,
/// cancel and close; if such a call appends outcomes, the next call of report() reports them.
/// `reporting` is scratch space.
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
