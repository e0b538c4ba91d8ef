// SPDX-License-Identifier: Apache-2.0
//
// Moves slices by the CPU. If the transport shares memory, steps are fused. A reduction reads
// messages where they arrived. A result that is also sent is written into memory that the peers
// read, and is then copied from there to its own place. A message to several peers is written once.
// If bytes are both copied and sent, they are read once, and written to both places piece by piece.
// Results and their order are the same as without fusion.
#pragma once

#include "xylem/execution/held_views.h"

#include <cstdint>

namespace xylem::execution {

/// Computes a slice of a copy or reduction, and sends the result if a send of this slice can be
/// issued now.
void compute_slice(HeldViews& views, Execution& execution, StepId id, std::uint32_t slice);
/// Handles a slice that has arrived. If a step reads the slice through a view, the slice stays
/// where it is. Otherwise it is copied to its place, and forwarded if a send of this slice can be
/// issued now.
void receive_slice(HeldViews& views, Execution& execution, const HeldView& view);
/// What send_slice() has done.
enum class SendResult : std::uint8_t {
  sent,
  must_wait,  ///< For a slot: try again after peers have received some messages.
  must_post,  ///< The slice must be posted as a message (post()).
};
/// Sends a slice to all peers of the step's cast to which it can be sent now. If the same slice of
/// the cast's copy can be issued now, it is copied, too.
SendResult send_slice(Execution& execution, StepId id, std::uint32_t slice);

}  // namespace xylem::execution
