// SPDX-License-Identifier: Apache-2.0
//
// Cyclic runs of blocks. A message that would wrap around from the last block to the first is split
// at that point, by the sender and the receiver, so that the blocks of each part are adjacent in
// every buffer.
#pragma once

#include <algorithm>
#include <cstdint>

namespace xylem::collectives {

/// Calls visit(offset, block, count) for the one or two pieces of the run of `count` blocks that
/// begins at `first`, modulo `blocks`. `offset` counts from the beginning of the run. Precondition:
/// first < blocks, count ≤ blocks.
template <typename Visit>
void for_each_piece(std::uint32_t first, std::uint32_t count, std::uint32_t blocks, Visit&& visit) {
  const std::uint32_t head = std::min(count, blocks - first);
  if (head > 0) visit(0U, first, head);
  if (count > head) visit(head, 0U, count - head);
}

}  // namespace xylem::collectives
