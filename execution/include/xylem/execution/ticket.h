// SPDX-License-Identifier: Apache-2.0
//
// Tickets: by them, executions wait for work of a Compute and for streams.
#pragma once

#include <cstdint>

namespace xylem::execution {

/// Identifies a piece of work of a Compute. The pieces of work of a queue are numbered from 1, and
/// complete in the order of their numbers. A ticket with number 0 stands for work that has
/// completed. A gate has a ticket, too (gate_after(), gate_before()).
struct Ticket {
  std::uint64_t number = 0;
  std::uint32_t queue = 0;

  bool is_pending() const noexcept { return number != 0; }
  friend bool operator==(const Ticket&, const Ticket&) = default;
};

}  // namespace xylem::execution
