// SPDX-License-Identifier: Apache-2.0
//
// How a schedule runs in slices. A step moves ceil(bytes / slice) slices, but at least one; both
// ends of a message compute the same number from the same block sizes. This file defines which
// slice waits for which. The engine follows this definition, and verify() uses the same edges to
// prove the absence of deadlock.
#pragma once

#include "xylem/collectives/layout.h"
#include "xylem/collectives/schedule.h"

#include <cstdint>
#include <vector>

namespace xylem::collectives {

/// The relation between a step and another step for which it waits.
enum class EdgeKind : std::uint8_t {
  /// Slice k waits for slice k. Both steps move the same list of blocks, so their slices coincide.
  slice,
  /// The first slice waits for the last slice.
  whole,
  /// Slice k of the step that writes a scratch chunk waits until slice k − W of the chunk's reader
  /// has completed, where W is the window. The chunk is a ring buffer of W slices, so scratch does
  /// not grow with the message.
  lag,
};

struct Edge {
  StepId before = 0;
  EdgeKind kind = EdgeKind::slice;

  friend bool operator==(const Edge&, const Edge&) = default;
};

/// The edges into every step, and which scratch chunks are ring buffers.
struct Pipeline {
  std::vector<Edge> edges;  ///< Grouped by step.
  /// steps + 1 entries: the edges of step s are [first_edge[s], first_edge[s + 1]).
  std::vector<std::uint32_t> first_edge;
  std::vector<bool> windowed;  ///< For each scratch chunk, whether it is a ring buffer.
};

/// A scratch chunk is a ring buffer if it has exactly one writer, every operand that contains it
/// contains no other chunk (chunk_count 1), and each reader follows the writer by a slice edge.
/// Chunks of the user's buffers are never ring buffers. Nor is any chunk of a schedule that puts,
/// signals, waits or names another rank's memory: in such a plan other ranks may access the chunk,
/// and expect all of it to be in memory.
///
/// In addition to these edges, slices are ordered within a step, and between the steps of the same
/// (peer, channel): the last slice of one send comes before the first slice of the next, and
/// likewise for receives.
Pipeline pipeline(const Schedule& schedule);

/// Total size of the scratch chunks that are not ring buffers and so grow with the message.
std::uint64_t scratch_beyond_rings(const Schedule& schedule, const Counts& counts);

/// True if both steps move the same blocks in the same order, so that their slices coincide.
bool same_blocks(const Schedule& schedule, const Step& a, const Step& b) noexcept;

}  // namespace xylem::collectives
