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
  /// Slice k of the later step waits for slice k of the earlier step. Both steps move the same list
  /// of blocks, so slice k is the same part of the data in both.
  slice,
  /// The first slice of the later step waits for the last slice of the earlier step.
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
/// Chunks of the user's buffers are never ring buffers. A schedule with put, signal or wait steps,
/// or with operands in another rank's memory, has no ring buffers: other ranks may access its
/// scratch chunks, and expect whole chunks in memory.
///
/// In addition to the edges of the Pipeline, the slices of a step start in order, and so do the
/// sends to one (peer, channel): the last slice of a send starts before the first slice of the next
/// send. The same holds for receives.
Pipeline pipeline(const Schedule& schedule);

/// Total bytes of the scratch chunks that are not ring buffers, and whose size therefore grows with
/// the message.
std::uint64_t scratch_beyond_rings(const Schedule& schedule, const Counts& counts);

/// True if both steps move the same blocks in the same order, so that slice k is the same part of
/// the data in both.
bool same_blocks(const Schedule& schedule, const Step& a, const Step& b) noexcept;

}  // namespace xylem::collectives
