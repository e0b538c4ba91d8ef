// SPDX-License-Identifier: Apache-2.0
//
// How a schedule runs in slices. A step moves ceil(bytes / slice) slices, at least one; both ends
// of a message compute that number from the same block sizes. This is the one definition of which
// slice waits for which: the engine follows it, and verify() proves the absence of deadlock on the
// same edges.
#pragma once

#include "xylem/collectives/layout.h"
#include "xylem/collectives/schedule.h"

#include <cstdint>
#include <vector>

namespace xylem::collectives {

/// Between a step and one that it waits for.
enum class EdgeKind : std::uint8_t {
  /// Slice k waits for slice k. The two move the same list of blocks, so their slices coincide.
  slice,
  /// The first slice waits for the last.
  whole,
  /// Slice k of a scratch chunk's writer waits until slice k − W of its reader has completed: the
  /// chunk is a ring of W slices of memory, so scratch does not grow with the message.
  lag,
};

struct Edge {
  StepId before = 0;
  EdgeKind kind = EdgeKind::slice;

  friend bool operator==(const Edge&, const Edge&) = default;
};

/// The edges into every step, and which scratch chunks are rings.
struct Pipeline {
  std::vector<Edge> edges;  ///< Grouped by step.
  /// steps + 1 entries: the edges of step s are [first_edge[s], first_edge[s + 1]).
  std::vector<std::uint32_t> first_edge;
  std::vector<bool> windowed;  ///< Per scratch chunk.
};

/// A scratch chunk is a ring when it has exactly one writer, every operand that names it names it
/// alone (chunk_count 1), and each reader follows the writer by a slice edge. No chunk of the
/// user's buffers ever is, and none at all in a schedule that puts, signals, waits or names another
/// rank's memory: there other ranks may name the chunk, and they do not see the ring.
///
/// Besides these edges, slices go in order: within a step, and on each (peer, channel) step after
/// step in list order, sends and receives apart: the last slice of one send before the first of the
/// next.
Pipeline pipeline(const Schedule& schedule);

/// Bytes of the scratch chunks that are no rings: they grow with the message.
std::uint64_t scratch_beyond_rings(const Schedule& schedule, const Counts& counts);

/// True if the two steps move the same blocks in the same order, so that their slices coincide.
bool same_blocks(const Schedule& schedule, const Step& a, const Step& b) noexcept;

}  // namespace xylem::collectives
