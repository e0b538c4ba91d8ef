// SPDX-License-Identifier: Apache-2.0
//
// DevicePieces: gives devices the copies and reductions of executions.
//
// A slice of a copy or reduction is enqueued as soon as all slices that it reads have been enqueued
// or have completed. The device keeps the order by the tickets that are still pending. When a slice
// has completed, the messages that wait for it may go.
//
// To enqueue work on a device takes microseconds, whatever its size. So slices that lie next to
// each other are enqueued as one piece. Two pieces of a step are enqueued as soon as their slices
// are ready. Meanwhile further slices gather. They become the next piece when one of the two has
// completed, or when they are 1 MiB. So a slow call has small pieces, whose results go on early,
// and a fast call large ones. Other ranks see slices, however large the pieces are.
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
  /// Lets the device copy slices of a receive, which have arrived in device memory
  /// (Run::unfetched), to their places.
  void fetch(Execution& execution, StepId id);
  /// Enqueues the copy of a point-to-point call. False if it has been made already.
  bool enqueue_copy(Execution& execution, const OnDevice::Copy& copy);

  /// Releases what completed work of a device has read. Then, if the execution goes on, call
  /// advance() for the slice of a collective.
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
