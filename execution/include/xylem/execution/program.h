// SPDX-License-Identifier: Apache-2.0
//
// Program: a schedule bound to sizes, in the form in which the engine runs it. It contains no
// addresses, so one program serves every call of the same operation, type, count, reduction and
// root. Communicators keep the programs that they used last.
#pragma once

#include "xylem/base/status.h"
#include "xylem/collectives/layout.h"
#include "xylem/collectives/pipeline.h"
#include "xylem/collectives/schedule.h"
#include "xylem/execution/reduce_kernel.h"
#include "xylem/execution/tag.h"
#include "xylem/transport/transport.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace xylem::execution {

using collectives::StepId;

/// Run::base has the address of each buffer (collectives::Buffer), and that of scratch in the
/// memory of a device.
inline constexpr std::uint8_t kDeviceScratch = 3;
inline constexpr std::size_t kBases = 4;

/// The window of programs that a device computes whose messages all stay in device memory. They
/// take no slots, so more can be in flight, and a device gets larger pieces of work. Ranks need not
/// agree on it.
constexpr std::uint32_t device_window(std::uint32_t window) noexcept {
  return std::max(window, std::min(2 * window, kMaxWindow));
}

/// Where the slices of an operand lie in its buffer. A ring has room for Program::window slices
/// only: slice k lies at position k % window.
struct OperandLayout {
  std::uint64_t offset = 0;
  collectives::Buffer buffer = collectives::Buffer::input;
  bool ring = false;
  std::uint8_t base = 0;  ///< Index into Run::base: that of `buffer`, or kDeviceScratch.
  /// For a ring that a receive fills: slice k may be read where it arrived, through the view
  /// Run::views[view + k % window], instead of here.
  std::uint32_t view = collectives::kNone;

  bool same_memory(const OperandLayout& other) const noexcept {
    return buffer == other.buffer && offset == other.offset && ring == other.ring;
  }
};

/// One step with its sizes. Slice k moves bytes [k · slice, min((k + 1) · slice, bytes)).
struct ProgramStep {
  collectives::StepKind kind = collectives::StepKind::copy;
  bool finish = false;
  std::uint16_t source_count = 0;
  std::uint32_t lane = 0;  ///< Index into Program::lanes; kNone for copy and reduce.
  /// At least one. A wait has one slice for each signal that no earlier wait has received.
  std::uint32_t slices = 1;
  std::uint32_t ordinal = 0;  ///< Position of slice 0 among the messages of its lane.
  std::uint32_t first_edge = 0, edge_count = 0;            ///< Into Program::edges.
  std::uint32_t first_successor = 0, successor_count = 0;  ///< Into Program::successors.
  std::uint32_t first_source = 0;                          ///< Into Program::sources.
  std::uint64_t bytes = 0;
  OperandLayout target;
  /// Index into Program::casts, if the step belongs to a cast. The sends of a cast belong to it,
  /// and so does the step that produces what they send. A copy of the same bytes for which no step
  /// waits belongs to it, too: it is made along with the sends, or after them while the bytes are
  /// in the cache.
  std::uint32_t cast = collectives::kNone;
  /// True for a copy for which no step waits. Each slice of it is copied along with the first send
  /// of `cast` that writes a slot, or after all sends of `cast`.
  bool is_unawaited = false;

  /// True if messages carry the step. A send or receive of no bytes needs no message.
  bool is_message() const noexcept {
    return lane != collectives::kNone && (bytes > 0 || kind == collectives::StepKind::signal ||
                                          kind == collectives::StepKind::wait);
  }
  /// True if a Compute does the step: a copy or reduction of at least one byte.
  bool is_computed() const noexcept { return lane == collectives::kNone && bytes > 0; }
};

/// Sends of the same bytes to several peers, or of what a step has just produced. If the transport
/// shares memory, a slice is written once, and all receivers read it.
struct Cast {
  std::uint32_t first_send = 0, send_count = 0;  ///< Into Program::cast_sends.
  StepId copy = collectives::kNone;              ///< The unawaited copy of the same bytes, if any.
};

/// The messages to or from one peer on one channel, and their steps, both in list order.
struct Lane {
  std::uint32_t peer = 0;    ///< Rank in the communicator.
  std::uint32_t number = 0;  ///< Number of the lane in tags: the channel, plus 16 for signals.
  bool outgoing = false;
  std::uint32_t first_step = 0, step_count = 0;  ///< Into Program::lane_steps.

  /// The ranks that the lane's messages come from and go to.
  struct Ends {
    std::uint32_t source = 0, target = 0;
  };
  Ends ends(std::uint32_t own_rank) const noexcept {
    return outgoing ? Ends{own_rank, peer} : Ends{peer, own_rank};
  }
};

struct Program {
  std::string algorithm;
  std::uint64_t slice_bytes = 0;
  std::uint32_t element_bytes = 1;
  std::uint32_t window = 1;  ///< Slices in flight per lane; also the number of slices of a ring.
  /// For each of Run::base, how many bytes lie there. The offsets of scratch on a device begin
  /// where those of scratch on the host end.
  std::array<std::uint64_t, kBases> base_bytes{};
  Arithmetic arithmetic;
  std::vector<ProgramStep> steps;
  std::vector<OperandLayout> sources;
  std::vector<collectives::Edge> edges;
  std::vector<StepId> successors;
  std::vector<Lane> lanes;
  std::vector<StepId> lane_steps;
  std::vector<Cast> casts;
  std::vector<StepId> cast_sends;
  std::uint32_t view_count = 0;
  std::vector<StepId> local_steps;  ///< Copies and reductions.
  /// True if the schedule is an exchange and each step has one slice: see exchange.h.
  bool is_exchange = false;
  /// Which sent data may stay in place until its receiver has read it.
  transport::InPlace in_place = transport::InPlace::never;

  std::uint64_t bytes_of(collectives::Buffer buffer) const noexcept {
    return base_bytes[static_cast<std::size_t>(buffer)];
  }
  std::uint64_t host_scratch_bytes() const noexcept {
    return bytes_of(collectives::Buffer::scratch);
  }
  std::uint64_t device_scratch_bytes() const noexcept { return base_bytes[kDeviceScratch]; }

  /// Whether data that is sent from `source` may stay in place. That is `in_place`, except for
  /// scratch of the host, since peers do not map it.
  transport::InPlace in_place_of(const OperandLayout& source) const noexcept {
    const bool is_scratch = source.base == static_cast<int>(collectives::Buffer::scratch);
    return is_scratch && in_place == transport::InPlace::shared_only ? transport::InPlace::never
                                                                     : in_place;
  }

  /// The operand that a send or copy reads.
  const OperandLayout& source_of(const ProgramStep& step) const noexcept {
    return sources[step.first_source];
  }
  std::span<const OperandLayout> sources_of(const ProgramStep& step) const noexcept {
    return {sources.data() + step.first_source, step.source_count};
  }
  std::span<const collectives::Edge> edges_of(const ProgramStep& step) const noexcept {
    return {edges.data() + step.first_edge, step.edge_count};
  }
  std::span<const StepId> successors_of(const ProgramStep& step) const noexcept {
    return {successors.data() + step.first_successor, step.successor_count};
  }
  std::span<const StepId> steps_of(const Lane& lane) const noexcept {
    return {lane_steps.data() + lane.first_step, lane.step_count};
  }
  std::span<const StepId> sends_of(const Cast& cast) const noexcept {
    return {cast_sends.data() + cast.first_send, cast.send_count};
  }
  std::uint64_t slice_size(const ProgramStep& step, std::uint32_t slice) const noexcept {
    const std::uint64_t begin = slice * slice_bytes;
    return begin >= step.bytes ? 0 : std::min(slice_bytes, step.bytes - begin);
  }
  std::uint64_t slice_offset(const OperandLayout& layout, std::uint32_t slice) const noexcept {
    return layout.offset + (layout.ring ? slice % window : slice) * slice_bytes;
  }
};

/// Which steps may work on messages in the memory where these travel.
enum class Fusion : std::uint8_t {
  none,
  /// Copies and reductions may read received messages where they arrived. For programs that a
  /// device computes.
  views,
  /// Also, results may be written where peers read them, and small programs may run as exchanges.
  /// For the CPU.
  all,
};

/// The sizes and functions that a schedule is bound to.
struct ProgramOptions {
  collectives::Counts counts{};
  std::uint64_t slice_bytes =
      256 * 1024;  ///< A multiple of 64, so that a slice never splits an element.
  std::uint32_t window = 8;
  Arithmetic arithmetic{};
  Fusion fusion = Fusion::all;
  /// [rank]: whether messages to it can be sent from the memory of the device that computes the
  /// program. Then scratch in which no messages arrive is in that memory. Empty: no message can,
  /// and all scratch is on the host.
  std::vector<bool> device_sends{};
};

/// Fails with `unsupported` for operands in other ranks' memory and for put, since no transport of
/// this build maps the memory of peers.
Result<std::shared_ptr<const Program>> compile(const collectives::Schedule& schedule,
                                               const ProgramOptions& options);

}  // namespace xylem::execution
