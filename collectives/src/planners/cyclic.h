// SPDX-License-Identifier: Apache-2.0
//
// Runs of blocks counted cyclically. A message that would pass from the last block to the first is
// split there, at both its ends, so that its blocks lie side by side in every buffer.
#pragma once

#include <algorithm>
#include <cstdint>

namespace xylem::collectives {

/// Calls visit(offset, block, count) for the one or two pieces of blocks first, first + 1, … first
/// + count − 1 modulo `blocks`; `offset` counts from the run's beginning. Precondition: first <
/// blocks, count ≤ blocks.
template <typename Visit>
void for_each_piece(std::uint32_t first, std::uint32_t count, std::uint32_t blocks, Visit&& visit) {
  const std::uint32_t head = std::min(count, blocks - first);
  if (head > 0) visit(0U, first, head);
  if (count > head) visit(head, 0U, count - head);
}

}  // namespace xylem::collectives
