// SPDX-License-Identifier: Apache-2.0
//
// DevicePieces: enqueues the copies and reductions of executions on devices.
//
// A slice of a copy or reduction is enqueued as soon as all slices that it reads have been enqueued
// or have completed. It is enqueued with the tickets of the slices that are still pending, and the
// device runs it after them. A message that depends on a slice is issued when the slice has
// completed.
//
// Enqueuing work on a device takes microseconds, whatever its size. So adjacent slices are enqueued
// together, as one piece. While fewer than two pieces of a step are pending, slices are enqueued as
// soon as they are ready. While two pieces are pending, ready slices are collected. They become the
// next piece when one of the two has completed, or when they have reached 1 MiB. So pieces are
// small while few slices are ready, which makes their results available early. Under load, pieces
// are large. A message to another rank always carries one slice, whatever the size of the pieces.
//
// A message in device memory is received as a view (transport/views.h). The work reads the message
// where it is, and the view is released when the work has completed.
#pragma once

#include "xylem/execution/held_views.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace xylem::execution {

struct Slices;

/// What DevicePieces has enqueued on devices. Copies of views that are evicted (held_views.h) are
/// not counted.
struct EnqueuedPieces {
  std::uint64_t pieces = 0;
  std::uint64_t staged_bytes = 0;  ///< Bytes that were copied between device and host memory.
};

class DevicePieces {
 public:
  /// The arguments must outlive this object.
  DevicePieces(EngineListener& listener, PendingWork& pending, HeldViews& views)
      : listener_(listener), pending_(pending), views_(views) {}

  /// Enqueues the next piece of a copy or reduction, if the rules above permit a further piece.
  /// Only slices before `ready` may be enqueued.
  void enqueue(Execution& execution, StepId id, std::uint32_t ready);
  /// Enqueues copies of the slices that have arrived in device memory (Run::unfetched) to their
  /// places. Slices of a step that already has two pending pieces are left for a later call.
  void fetch(Execution& execution);
  /// Enqueues the copy of a point-to-point call. False if the copy has completed within this call.
  /// If it cannot be enqueued, the listener is informed.
  bool enqueue_copy(Execution& execution, const OnDevice::Copy& copy);

  /// Call this when work of a device has completed. It releases the views that the work has read.
  /// If the work is a slice of a collective, and the execution has not failed, call advance()
  /// afterwards.
  void release(const PendingWork::Work& work);
  /// Records that a slice of a collective has completed. Queues the steps that wait for this slice,
  /// and the step itself if it has further slices.
  void advance(const PendingWork::Work& work);

  const EnqueuedPieces& enqueued() const noexcept { return enqueued_; }

 private:
  Ticket compute(Execution& execution, StepId id, const Slices& piece);
  void find_pending(const Run& run, const ProgramStep& step, std::uint32_t slice);
  void await(Execution& execution, StepId id, const Slices& piece, Ticket ticket);
  void fetch_piece(Execution& execution, std::size_t first, std::uint32_t slices);
  void count_piece(std::uint64_t staged_bytes) noexcept {
    ++enqueued_.pieces;
    enqueued_.staged_bytes += staged_bytes;
  }

  EngineListener& listener_;
  PendingWork& pending_;
  HeldViews& views_;
  /// The tickets of the pending work that the piece being enqueued must follow.
  std::vector<Ticket> after_;
  EnqueuedPieces enqueued_;
};

}  // namespace xylem::execution
