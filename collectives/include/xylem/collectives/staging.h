// SPDX-License-Identifier: Apache-2.0
//
// Staging: changes a schedule so that it copies the user's data through scratch. This is needed if
// the user's memory cannot be used directly: if the network does not reach device memory, if the
// input is scaled before it is used, or if the call overwrites its input before all of it has been
// read.
#pragma once

#include "xylem/collectives/schedule.h"

#include <cstdint>
#include <vector>

namespace xylem::collectives {

struct Staging {
  /// Each input chunk is copied into scratch once, and all other steps read the copy. So an
  /// all_to_all that is staged in this way can run in place.
  bool input = false;
  /// sends[r]: data for rank r is copied to scratch before it is sent. Empty: for no rank.
  std::vector<bool> sends{};
  /// receives[r]: data from rank r is received into scratch, and then copied to its target. Empty:
  /// for no rank.
  std::vector<bool> receives{};
  /// If copies or reductions also write the scratch target of a receive, the receive gets
  /// additional scratch, from which its data is copied to the target. So every scratch chunk is
  /// written either by messages only or by computation only, and the two kinds of chunks can be in
  /// different memory.
  bool separates_scratch = false;

  bool changes_anything() const noexcept {
    return input || !sends.empty() || !receives.empty() || separates_scratch;
  }
};

/// The staging in which all sends and receives of a communicator of `ranks` ranks use only scratch.
Staging staged_messages(std::uint32_t ranks);

/// Returns the staged schedule. It has the same result as `schedule`, and passes verify() if
/// `schedule` does. If the steps allow it (pipeline.h), the added scratch chunks are ring buffers,
/// whose size does not grow with the message. Precondition: no step uses memory of another rank.
Schedule stage(const Schedule& schedule, const Staging& staging);

}  // namespace xylem::collectives
