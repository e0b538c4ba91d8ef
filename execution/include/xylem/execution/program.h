// SPDX-License-Identifier: Apache-2.0
//
// Program: a schedule bound to sizes, in the form the engine runs. It still knows no address, so
// one program serves every call of the same operation, type, count, reduction and root;
// communicators keep the ones they used last.
#pragma once

#include "xylem/base/status.h"
#include "xylem/collectives/layout.h"
#include "xylem/collectives/pipeline.h"
#include "xylem/collectives/schedule.h"
#include "xylem/execution/reduce_kernel.h"
#include "xylem/transport/transport.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace xylem::execution {

using collectives::StepId;

/// Where an operand's slices lie in its buffer. A ring of slices repeats every `window` slices.
struct Place {
  std::uint64_t offset = 0;
  collectives::Buffer buffer = collectives::Buffer::input;
  bool ring = false;
  /// Of a ring that a receive fills: slice k may be looked at where it arrived, as Run::views
  /// [view + k % window], in place of here.
  std::uint32_t view = collectives::kNone;

  bool same_memory(const Place& other) const noexcept {
    return buffer == other.buffer && offset == other.offset && ring == other.ring;
  }
};

/// One step with its sizes. Slice k moves bytes [k · slice, min((k + 1) · slice, bytes)).
struct ProgramStep {
  collectives::StepKind kind = collectives::StepKind::copy;
  bool finish = false;
  std::uint16_t source_count = 0;
  std::uint32_t lane = 0;     ///< Index into Program::lanes; kNone for copy and reduce.
  std::uint32_t slices = 1;   ///< At least one; a wait has one per signal it is the first to need.
  std::uint32_t ordinal = 0;  ///< Place of slice 0 in its lane's order of messages.
  std::uint32_t first_edge = 0, edge_count = 0;            ///< Into Program::edges.
  std::uint32_t first_successor = 0, successor_count = 0;  ///< Into Program::successors.
  std::uint32_t first_source = 0;                          ///< Into Program::sources.
  std::uint64_t bytes = 0;
  Place target;
  /// Index into Program::casts: of a send, and of the step that makes what is sent; of a copy that
  /// nobody waits for, the sends that it goes along with, or follows while the bytes are in the
  /// cache.
  std::uint32_t cast = collectives::kNone;
  /// A copy that no step follows. A slice of it is made along with the first send of `cast` that
  /// writes a slot, or after all of them.
  bool is_unawaited = false;

  /// Whether a message goes by it: a send or receive of no bytes needs none.
  bool is_message() const noexcept {
    return lane != collectives::kNone && (bytes > 0 || kind == collectives::StepKind::signal ||
                                          kind == collectives::StepKind::wait);
  }
  /// Whether a Compute does it: a copy or reduction of at least one byte.
  bool is_computed() const noexcept { return lane == collectives::kNone && bytes > 0; }
};

/// Sends of the same bytes to several peers, or of what a step has just made: where the transport
/// shares memory, a slice is written once, for all of them to read.
struct Cast {
  std::uint32_t first_send = 0, send_count = 0;  ///< Into Program::cast_sends.
  StepId copy = collectives::kNone;              ///< Unawaited, of the same bytes; if any.
};

/// One ordered stream of messages to or from one peer: its steps in list order.
struct Lane {
  std::uint32_t peer = 0;    ///< Rank in the communicator.
  std::uint32_t number = 0;  ///< Channel, plus 16 for signals: the tag's lane.
  bool outgoing = false;
  std::uint32_t first_step = 0, step_count = 0;  ///< Into Program::lane_steps.
};

struct Program {
  std::string algorithm;
  std::uint64_t slice_bytes = 0;
  std::uint32_t element_bytes = 1;
  std::uint32_t window = 1;  ///< Slices in flight per lane; also the slices of a ring.
  std::uint64_t scratch_bytes = 0;
  std::uint64_t input_bytes = 0, output_bytes = 0;
  ReduceKernel kernel = nullptr;
  std::uint32_t divisor = 1;
  /// Copies out of the input multiply by the factor of the call, if this is set.
  ScaleKernel scale = nullptr;
  std::vector<ProgramStep> steps;
  std::vector<Place> sources;
  std::vector<collectives::Edge> edges;
  std::vector<StepId> successors;
  std::vector<Lane> lanes;
  std::vector<StepId> lane_steps;
  std::vector<Cast> casts;
  std::vector<StepId> cast_sends;
  std::uint32_t view_count = 0;
  std::vector<StepId> local_steps;  ///< Copies and reductions.
  /// The schedule is an exchange, and each step has one slice: see engine_exchange.cc.
  bool is_exchange = false;
  /// Where what is sent may stay until its receiver has read it.
  transport::Stay stay = transport::Stay::nowhere;

  /// The same for what is sent from one place: scratch is no memory that peers map.
  transport::Stay stay_of(const Place& source) const noexcept {
    const bool is_scratch = source.buffer == collectives::Buffer::scratch;
    return is_scratch && stay == transport::Stay::in_shared ? transport::Stay::nowhere : stay;
  }

  std::uint64_t slice_size(const ProgramStep& step, std::uint32_t slice) const noexcept {
    const std::uint64_t begin = slice * slice_bytes;
    return begin >= step.bytes ? 0 : std::min(slice_bytes, step.bytes - begin);
  }
  std::uint64_t slice_offset(const Place& place, std::uint32_t slice) const noexcept {
    return place.offset + (place.ring ? slice % window : slice) * slice_bytes;
  }
};

/// What binds a schedule to sizes.
struct ProgramOptions {
  collectives::Counts counts{};
  std::uint64_t slice_bytes =
      256 * 1024;  ///< A multiple of 64, so a slice never splits an element.
  std::uint32_t window = 8;
  ReduceKernel kernel = nullptr;  ///< Where the collective reduces.
  std::uint32_t divisor = 1;      ///< Ranks, for an average.
  /// Multiplies the input by the factor of the call (premul_sum). The schedule is then one that was
  /// staged with Staging::input: copies alone read the input, and they scale it.
  ScaleKernel scale = nullptr;
  /// Whether steps may work on messages where they travel, and small programs may run as exchanges.
  /// Only for programs that the CPU computes.
  bool fuses = true;
};

/// `unsupported` for operands in other ranks' memory and for put: no transport of this build maps
/// peers' memory.
Result<std::shared_ptr<const Program>> compile(const collectives::Schedule& schedule,
                                               const ProgramOptions& options);

}  // namespace xylem::execution
