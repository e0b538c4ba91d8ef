// SPDX-License-Identifier: Apache-2.0
//
// Program: a schedule bound to sizes, in the form in which the engine runs it. It contains no
// addresses, so one program serves every call of the same operation, type, count, reduction and
// root. Communicators keep their most recently used programs.
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

/// Run::base is indexed by collectives::Buffer, and by kDeviceScratch for scratch in the memory of
/// a device.
inline constexpr std::uint8_t kDeviceScratch = 3;
inline constexpr std::size_t kBases = 4;

/// The window of a program that a device computes, if all of its messages stay in device memory.
/// Such messages occupy no slots. So more of them can be in flight, and the device gets larger
/// pieces of work. The ranks of a call may have different windows.
constexpr std::uint32_t device_window(std::uint32_t window) noexcept {
  return std::max(window, std::min(2 * window, kMaxWindow));
}

/// The window of a program that a device computes, if all ranks have agreed on device memory and on
/// the size of slices. Scratch has room for the slices of a window, so they have at most 16 MiB
/// together, but are at least two.
constexpr std::uint32_t window_of_device_slices(std::uint32_t window,
                                                std::uint64_t slice_bytes) noexcept {
  constexpr std::uint64_t kMostBytes = std::uint64_t{16} << 20;
  const std::uint64_t fit = std::max<std::uint64_t>(2, kMostBytes / slice_bytes);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(fit, device_window(window)));
}

/// Where the slices of an operand lie in its buffer. A ring has room for Program::window slices
/// only: slice k lies at position k % window.
struct OperandLayout {
  std::uint64_t offset = 0;
  collectives::Buffer buffer = collectives::Buffer::input;
  bool ring = false;
  std::uint8_t base = 0;  ///< Index into Run::base: `buffer` or kDeviceScratch.
  /// For a ring that a receive fills: slice k may be read where it arrived, through the view
  /// Run::views[view + k % window], instead of from the ring.
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
  std::uint32_t lane = 0;  ///< Index into Program::lanes; kNone for local steps.
  /// Number of slices, at least one. A wait has one slice for each signal that no earlier wait has
  /// received.
  std::uint32_t slices = 1;
  std::uint32_t ordinal = 0;  ///< Position of slice 0 among the messages of its lane.
  std::uint32_t first_edge = 0, edge_count = 0;            ///< A range of Program::edges.
  std::uint32_t first_successor = 0, successor_count = 0;  ///< A range of Program::successors.
  std::uint32_t first_source = 0;                          ///< Index into Program::sources.
  std::uint64_t bytes = 0;
  OperandLayout target;
  /// Index into Program::casts; kNone if the step belongs to no cast. The steps of a cast are its
  /// sends, the step that produces the bytes that they send, and a copy of the same bytes for which
  /// no step waits (is_unawaited).
  std::uint32_t cast = collectives::kNone;
  /// True for a copy for which no step waits. If the copy belongs to a cast, each slice is copied
  /// together with the first send of the cast that writes a slot. If no send writes a slot, the
  /// slice is copied after all sends of the cast.
  bool is_unawaited = false;

  /// True if the step sends or receives messages. A send or receive of no bytes needs no message.
  bool is_message() const noexcept {
    return lane != collectives::kNone && (bytes > 0 || kind == collectives::StepKind::signal ||
                                          kind == collectives::StepKind::wait);
  }
  /// True for a copy or reduction of at least one byte.
  bool is_computed() const noexcept { return lane == collectives::kNone && bytes > 0; }
};

/// Sends of the same bytes to several peers, or a send of bytes that another step produces or
/// copies. If the transport shares memory, a slice is written once, and all receivers read it
/// there.
struct Cast {
  std::uint32_t first_send = 0, send_count = 0;  ///< A range of Program::cast_sends.
  StepId copy = collectives::kNone;              ///< The unawaited copy of the same bytes, if any.
};

/// The messages to or from one peer on one channel, and their steps, both in list order.
struct Lane {
  std::uint32_t peer = 0;    ///< Rank in the communicator.
  std::uint32_t number = 0;  ///< Number of the lane in tags: the channel, plus 16 for signals.
  bool outgoing = false;
  std::uint32_t first_step = 0, step_count = 0;  ///< A range of Program::lane_steps.

  /// The rank that sends the messages of a lane, and the rank that receives them.
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
  /// base_bytes[b] is the number of bytes at Run::base[b]. The offsets of scratch on a device begin
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
  std::vector<StepId> local_steps;    ///< Steps without a lane, such as copies and reductions.
  bool is_agreed_on_devices = false;  ///< See ProgramOptions.
  /// True if the schedule is an exchange and each step has one slice: see exchange.h.
  bool is_exchange = false;
  /// Which sent data may stay where it is until its receiver has read it.
  transport::InPlace in_place = transport::InPlace::never;

  std::uint64_t bytes_of(collectives::Buffer buffer) const noexcept {
    return base_bytes[static_cast<std::size_t>(buffer)];
  }
  std::uint64_t host_scratch_bytes() const noexcept {
    return bytes_of(collectives::Buffer::scratch);
  }
  std::uint64_t device_scratch_bytes() const noexcept { return base_bytes[kDeviceScratch]; }

  /// Whether data that is sent from `source` may stay where it is until its receiver has read it.
  /// This is `in_place`, except that scratch of the host never stays if `in_place` is shared_only,
  /// since peers do not map it.
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

/// Which steps may read or write messages directly in the memory of the transport.
enum class Fusion : std::uint8_t {
  none,
  /// Copies and reductions may read received messages where they arrived. For programs that a
  /// device computes.
  views,
  /// As `views`; also, results may be written where peers read them, and small programs may run as
  /// exchanges. For programs that the CPU computes.
  all,
};

/// The sizes, functions and choices with which a schedule is compiled.
struct ProgramOptions {
  collectives::Counts counts{};
  std::uint64_t slice_bytes =
      256 * 1024;  ///< A multiple of 64, so that a slice never splits an element.
  std::uint32_t window = 8;
  /// True if all ranks have agreed on device memory for the call. The tags of its data then differ
  /// from those of ranks that believe otherwise, so that no message of another slice size arrives.
  bool is_agreed_on_devices = false;
  Arithmetic arithmetic{};
  Fusion fusion = Fusion::all;
  /// For Fusion::views: true if it is proven (verify_program.h) that ranks which read messages
  /// where they arrived never wait for each other in a circle. If false, the program reads messages
  /// there only if this rank's schedule alone shows that no circle is possible.
  bool has_safe_views = false;
  /// device_sends[r]: whether messages to rank r can be sent from the memory of the device that
  /// computes the program. A chunk of scratch is in device memory if no message arrives in it, and
  /// if all messages from it can be sent from there. If this is empty, all scratch is on the host.
  std::vector<bool> device_sends{};
};

/// Compiles a schedule. Fails with `unsupported` if a step is a put or has an operand in the memory
/// of another rank, since no transport maps the buffers of peers.
Result<std::shared_ptr<const Program>> compile(const collectives::Schedule& schedule,
                                               const ProgramOptions& options);

}  // namespace xylem::execution
