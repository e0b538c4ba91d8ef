// SPDX-License-Identifier: Apache-2.0
//
// A schedule: what one rank does in one collective, as plain data.
//
// Schedules are values. They name chunks, buffers and channels, never addresses or bytes, so one
// schedule serves every call of the same shape. A planner builds schedules, verify() proves them
// for all ranks together, and the engine executes them slice by slice. See docs/schedules.md.
#pragma once

#include "xylem/base/status.h"

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace xylem::collectives {

enum class Collective : std::uint8_t {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  all_to_all,
  gather,
  scatter,
  barrier,
};
inline constexpr std::size_t kCollectiveCount = 9;

std::string_view name(Collective collective) noexcept;
Result<Collective> parse_collective(std::string_view text);
/// Whether the collective has a root: reduce, broadcast, gather, scatter.
bool has_root(Collective collective) noexcept;
/// Whether the collective combines elements: all_reduce, reduce, reduce_scatter.
bool reduces(Collective collective) noexcept;

/// The facts on which a plan depends; all ranks agree on them. `root` is 0 if the collective has
/// none.
struct Shape {
  Collective collective = Collective::all_reduce;
  std::uint32_t ranks = 1;
  std::uint32_t root = 0;
  /// Number of ranks on each host, if all hosts have equally many; otherwise 1. The ranks of a host
  /// are consecutive. Divides `ranks`.
  std::uint32_t per_host = 1;
  /// If hosts have unequal numbers of ranks: the number of each host, in the order of their ranks;
  /// above 0, and `ranks` in all. Empty if all hosts have `per_host` ranks.
  std::vector<std::uint32_t> host_sizes = {};

  friend bool operator==(const Shape&, const Shape&) = default;
};

/// `input` and `output` belong to the caller, `scratch` to the engine. `input` is never written,
/// except where an in-place call makes it share memory with the output (alias.h).
enum class Buffer : std::uint8_t { input, output, scratch };
std::string_view name(Buffer buffer) noexcept;

enum class StepKind : std::uint8_t {
  send,  ///< Sends sources[0] to `peer`.
  recv,  ///< Receives from `peer` into target.
  copy,  ///< target = sources[0].
  /// target = sources[0] ∘ sources[1] ∘ …, from left to right; target may be one of the sources.
  reduce,
  put,  ///< target (mapped memory of `peer`) = sources[0].
  /// Adds one to the counter (this rank → peer, channel) at `peer`. The peer waits for every
  /// signal, so one run of the schedule raises the counter by the highest value for which the peer
  /// waits.
  signal,
  wait,  ///< Waits until the counter (peer → this rank, channel) has grown by `value` in this run.
};
std::string_view name(StepKind kind) noexcept;

using StepId = std::uint32_t;
inline constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

/// Consecutive chunks in one rank's buffer; their number is the step's `chunk_count`. `rank` may
/// differ from the rank of the schedule only if the memory of `rank` is mapped by this process.
struct Operand {
  std::uint32_t rank = 0;
  std::uint32_t chunk = 0;
  Buffer buffer = Buffer::input;

  friend bool operator==(const Operand&, const Operand&) = default;
};

/// One action: a send, receive, copy, reduction, put, signal or wait. Its slice k starts after
/// slice k of each predecessor that moves the same blocks, and after all slices of each other
/// predecessor (see pipeline.h).
///
/// Sends to the same (peer, channel) start in list order, and so do receives, signals and waits:
/// the k-th send of one rank matches the k-th receive of the other.
struct Step {
  StepKind kind = StepKind::copy;
  std::uint8_t channel = 0;
  /// For reduce only: the result contains the contributions of all ranks. If the call computes an
  /// average, this step also divides, before it rounds the result.
  bool finish = false;
  std::uint8_t reserved = 0;
  std::uint16_t source_count = 0;
  std::uint16_t predecessor_count = 0;
  std::uint32_t peer = kNone;    ///< For send, recv, put, signal and wait; kNone otherwise.
  std::uint32_t target = kNone;  ///< Index into Schedule::operands, for recv, copy, reduce, put.
  std::uint32_t first_source = kNone;  ///< Index of the first source, for send, copy, reduce, put.
  std::uint32_t chunk_count = 0;  ///< Number of chunks of every operand; 0 for signal and wait.
  /// Index into Schedule::predecessors; the id of each predecessor is less than that of this step.
  std::uint32_t first_predecessor = 0;
  std::uint32_t value = 0;  ///< For wait only.

  friend bool operator==(const Step&, const Step&) = default;
};
static_assert(sizeof(Step) == 32 && std::is_trivially_copyable_v<Step>);

/// The schedule of one rank. All ranks of a communicator run schedules with the same `algorithm`,
/// shape, blocks and channels.
///
/// **Blocks** are the pieces of the call's data, numbered in the same way on all ranks. Each chunk
/// of each buffer holds one block, and both ends of a message name chunks with the same blocks.
/// With n ranks, where (0) means that chunk 0 is the only chunk:
///
///   collective                   blocks            input chunk i     output chunk i
///   all_reduce, reduce, broadcast  `blocks` parts    block i           block i
///   all_gather, gather           n                 (0) block rank    block i
///   reduce_scatter, scatter      n                 block i           (0) block rank
///   all_to_all                   n·n (from·n + to) block rank·n + i  block i·n + rank
///   barrier                      none
///
/// For reduce and gather only the root has an output; for broadcast and scatter only the root has
/// an input.
struct Schedule {
  std::string algorithm;  ///< The planner's name.
  Shape shape;
  std::uint32_t rank = 0;
  std::uint32_t blocks = 0;
  std::uint32_t channels = 1;          ///< At most kMaxChannels.
  std::vector<std::uint32_t> scratch;  ///< The block that each scratch chunk holds.
  std::vector<Step> steps;
  std::vector<Operand> operands;
  std::vector<StepId> predecessors;

  std::span<const Operand> sources(const Step& step) const noexcept {
    return step.source_count == 0
               ? std::span<const Operand>()
               : std::span(operands).subspan(step.first_source, step.source_count);
  }
  std::span<const StepId> predecessors_of(const Step& step) const noexcept {
    return step.predecessor_count == 0
               ? std::span<const StepId>()
               : std::span(predecessors).subspan(step.first_predecessor, step.predecessor_count);
  }

  friend bool operator==(const Schedule&, const Schedule&) = default;
};
inline constexpr std::uint32_t kMaxChannels = 16;

/// Whether the schedule is an exchange, provided that each step has one slice: between two ranks at
/// most one message goes each way, sends wait for nothing, receives wait at most for sends, and
/// copies and reductions wait only for messages. So all messages can be posted at once, and the
/// copies and reductions run afterwards.
bool is_exchange(const Schedule& schedule);

/// Number of chunks of a buffer at `rank`; 0 if the buffer does not exist there.
std::uint32_t chunk_count(const Schedule& schedule, std::uint32_t rank, Buffer buffer) noexcept;
/// The block that a chunk holds. Precondition: the chunk exists, and a scratch chunk is in the
/// scratch of the schedule's rank.
std::uint32_t block_of(const Schedule& schedule, const Operand& operand) noexcept;

}  // namespace xylem::collectives
