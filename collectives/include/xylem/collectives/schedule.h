// SPDX-License-Identifier: Apache-2.0
//
// A schedule: what one rank does to take part in one collective, as plain data.
//
// Schedules are values. They name chunks, buffers and channels, never addresses or bytes, so one
// schedule serves every call of the same shape. A planner builds it, verify() proves it for all
// ranks together, and the runtime's engine executes it slice by slice. See docs/schedules.md.
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
/// Whether the call has a root: reduce, broadcast, gather, scatter.
bool has_root(Collective collective) noexcept;
/// Whether the call combines elements: all_reduce, reduce, reduce_scatter.
bool reduces(Collective collective) noexcept;

/// What a plan depends on, and all ranks agree on. `root` is 0 where the collective has none.
struct Shape {
  Collective collective = Collective::all_reduce;
  std::uint32_t ranks = 1;
  std::uint32_t root = 0;
  /// Ranks of each host, where hosts have equally many and each host's are consecutive; 1 where it
  /// is not so. Divides `ranks`.
  std::uint32_t per_host = 1;

  friend bool operator==(const Shape&, const Shape&) = default;
};

/// `input` and `output` are the caller's, `scratch` the engine's. `input` is never written (but
/// through the aliases that an in-place call makes, see alias.h).
enum class Buffer : std::uint8_t { input, output, scratch };
std::string_view name(Buffer buffer) noexcept;

enum class StepKind : std::uint8_t {
  send,  ///< Sends sources[0] to `peer`.
  recv,  ///< Receives from `peer` into target.
  copy,  ///< target = sources[0].
  /// target = sources[0] ∘ sources[1] ∘ …, from left to right; target may be one of the sources.
  reduce,
  put,  ///< target (of `peer`, mapped) = sources[0].
  /// Adds one to the counter (this rank → peer, channel) at `peer`. Every signal is awaited there,
  /// so that the highest value awaited is what one run of the schedule adds to the counter.
  signal,
  wait,  ///< Waits until the counter (peer → this rank, channel) is at least `value`.
};
std::string_view name(StepKind kind) noexcept;

using StepId = std::uint32_t;
inline constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

/// A run of consecutive chunks of one rank's buffer; how many is the step's `chunk_count`. A rank
/// other than one's own is allowed only where the transport maps that rank's memory.
struct Operand {
  std::uint32_t rank = 0;
  std::uint32_t chunk = 0;
  Buffer buffer = Buffer::input;

  friend bool operator==(const Operand&, const Operand&) = default;
};

/// One operation. It may start when every step it comes after has completed: slice k needs slice k
/// of a predecessor that moves the same blocks, and the whole of any other (see pipeline.h).
///
/// Sends to one (peer, channel) start in list order, and so do receives, signals and waits: the
/// k-th send meets the k-th receive.
struct Step {
  StepKind kind = StepKind::copy;
  std::uint8_t channel = 0;
  /// reduce only: the result is complete; an average divides here, before rounding.
  bool finish = false;
  std::uint8_t reserved = 0;
  std::uint16_t source_count = 0;
  std::uint16_t predecessor_count = 0;
  std::uint32_t peer = kNone;          ///< send, recv, put, signal, wait; kNone otherwise.
  std::uint32_t target = kNone;        ///< Index into Schedule::operands: recv, copy, reduce, put.
  std::uint32_t first_source = kNone;  ///< Index of the first source: send, copy, reduce, put.
  std::uint32_t chunk_count = 0;  ///< Chunks of the target and of every source; 0 for signal, wait.
  /// Index into Schedule::predecessors; each of them is less than this step's id.
  std::uint32_t first_predecessor = 0;
  std::uint32_t value = 0;  ///< wait only.

  friend bool operator==(const Step&, const Step&) = default;
};
static_assert(sizeof(Step) == 32 && std::is_trivially_copyable_v<Step>);

/// One rank's part. All ranks of a communicator run schedules of the same `algorithm`, shape,
/// blocks and channels.
///
/// **Blocks** are the pieces of the call's data, numbered alike on all ranks; each chunk of each
/// buffer holds one block, and two ends of a message name chunks of the same blocks. With n ranks:
///
///   collective                   blocks            input chunk i     output chunk i
///   all_reduce, reduce, broadcast  `blocks` parts    block i           block i
///   all_gather, gather           n                 (0) block rank    block i
///   reduce_scatter, scatter      n                 block i           (0) block rank
///   all_to_all                   n·n (from·n + to) block rank·n + i  block i·n + rank
///   barrier                      none
///
/// Reduce and gather have an output only at the root; broadcast and scatter an input only at the
/// root.
struct Schedule {
  std::string algorithm;  ///< The planner's name.
  Shape shape;
  std::uint32_t rank = 0;
  std::uint32_t blocks = 0;
  std::uint32_t channels = 1;          ///< At most kMaxChannels.
  std::vector<std::uint32_t> scratch;  ///< Block held by each scratch chunk.
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

/// Whether it is an exchange, if each step has one slice: at most one message goes each way between
/// two ranks, computations wait for messages alone, and of messages only those that arrive wait,
/// for such as were sent (nobody can have sent what they bring before). So all messages can go at
/// once, and the rest follows.
bool is_exchange(const Schedule& schedule);

/// Chunks of a buffer at `rank`; 0 where the buffer does not exist there.
std::uint32_t chunk_count(const Schedule& schedule, std::uint32_t rank, Buffer buffer) noexcept;
/// The block in a chunk. Precondition: the chunk exists. Scratch chunks only of the schedule's own
/// rank.
std::uint32_t block_of(const Schedule& schedule, const Operand& operand) noexcept;

}  // namespace xylem::collectives
