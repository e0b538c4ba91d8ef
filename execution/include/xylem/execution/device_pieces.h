// SPDX-License-Identifier: Apache-2.0
//
// DevicePieces: enqueues the copies and reductions of executions on devices.
//
// A slice of a copy or reduction is enqueued as soon as all slices that it reads have been enqueued
// or have completed. The device keeps the order by the tickets that are still pending. Messages
// that wait for a slice are issued when it has completed.
//
// Enqueuing work on a device takes microseconds, whatever its size. So adjacent slices are enqueued
// together, as one piece. While fewer than two pieces of a step are pending, slices are enqueued as
// soon as they are ready. Otherwise further slices are collected. They become the next piece when
// one of the two has completed, or when they have reached 1 MiB. So a slow call has small pieces,
// whose results are used early, and a fast call has large ones. Other ranks see slices, whatever
// the size of the pieces.
//
// A message in device memory is a view (transport/views.h): the work reads it there, and the view
// is released when the work has completed.
#pragma once

#include "xylem/execution/held_views.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace xylem::execution {

struct Slices;

class DevicePieces {
 public:
  DevicePieces(PendingWork& pending, HeldViews& views) : pending_(pending), views_(views) {}

  /// Enqueues the next piece of a copy or reduction, whose slices before `ready` may be enqueued.
  void enqueue(Execution& execution, StepId id, std::uint32_t ready);
  /// Enqueues copies of those slices of a receive that have arrived in device memory
  /// (Run::unfetched). Each is copied to its place.
  void fetch(Execution& execution, StepId id);
  /// Enqueues the copy of a point-to-point call. False if the copy is complete already.
  bool enqueue_copy(Execution& execution, const OnDevice::Copy& copy);

  /// Releases the views that completed work of a device has read. If the work is a slice of a
  /// collective, and the execution has not failed, call advance() afterwards.
  void release(const PendingWork::Work& work);
  /// Handles a completed slice: slices that wait for it may be issued now, and so may further
  /// slices of the same step.
  void advance(const PendingWork::Work& work);

 private:
  Ticket compute(Execution& execution, StepId id, const Slices& piece);
  void find_pending(const Run& run, const ProgramStep& step, std::uint32_t slice);
  void await(Execution& execution, StepId id, const Slices& piece, Ticket ticket);
  void fetch_piece(Execution& execution, std::size_t first, std::uint32_t slices);

  PendingWork& pending_;
  HeldViews& views_;
  /// The tickets of the pending work that the piece being enqueued must follow.
  std::vector<Ticket> after_;
};

}  // namespace xylem::execution
