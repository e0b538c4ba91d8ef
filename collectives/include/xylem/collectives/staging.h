// SPDX-License-Identifier: Apache-2.0
//
// Staging: the same schedule with copies through scratch. It is needed where the user's memory
// cannot be used directly: a network that does not reach device memory, an input that is scaled
// before it is used, or an input that the call overwrites before it has been read.
#pragma once

#include "xylem/collectives/schedule.h"

namespace xylem::collectives {

struct Staging {
  /// The input is read by copies into scratch alone, each chunk once. An all_to_all may then have
  /// its output where its input is.
  bool input = false;
  /// Sends and receives name scratch alone. What a send reads is copied there before, and what a
  /// receive brings is copied to its place afterwards.
  bool messages = false;
};

/// The staged schedule. It does what `schedule` does, so it passes verify() if that does. Chunks
/// that it adds are rings where the steps allow it (pipeline.h), so they do not grow with the
/// message. Precondition: no step names another rank's memory.
Schedule stage(const Schedule& schedule, Staging staging);

}  // namespace xylem::collectives
