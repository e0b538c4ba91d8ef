// SPDX-License-Identifier: Apache-2.0
//
// Slices that the CPU moves. If the transport shares memory, steps are fused. A reduction reads
// messages where they arrived. Results that are sent on, and messages to several peers, are written
// once, into memory that the peers read; results are then copied from there to their own place. A
// copy of bytes that are also sent is made together with the send: the bytes are read once and
// written to both places, piece by piece. Results and order are the same as without fusion.
#pragma once

#include "xylem/execution/held_views.h"

namespace xylem::execution {

/// Runs a slice of a copy or reduction, and sends the result if a send of it can be issued now.
void compute_slice(HeldViews& views, Execution& execution, StepId id, std::uint32_t slice);
/// Handles a slice that has arrived. If a step reads it through a view, the slice stays where it
/// is. Otherwise it is copied to its place, and sent on if a send of it can be issued now.
void receive_slice(HeldViews& views, Execution& execution, const HeldView& view);
/// Sends a slice to all peers of the step's cast to which it can be sent now. If the cast has a
/// copy, and the same slice is the next slice of this copy and is ready, the slice is copied, too.
/// Returns `later` if this send must wait for a slot, and `never` if the slice must be sent by a
/// message.
transport::ReserveResult send_slice(Execution& execution, StepId id, std::uint32_t slice);

}  // namespace xylem::execution
