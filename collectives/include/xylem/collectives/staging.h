// SPDX-License-Identifier: Apache-2.0
//
// Staging: changes a schedule so that it copies the user's data through scratch. This is needed if
// the user's memory cannot be used directly: if the network does not reach device memory, if the
// input is scaled before it is used, or if the call overwrites its input before all of it has been
// read.
#pragma once

#include "xylem/collectives/schedule.h"

namespace xylem::collectives {

struct Staging {
  /// Only copies into scratch read the input, each chunk once. An all_to_all that is staged like
  /// this may be in place.
  bool input = false;
  /// Sends and receives use only scratch. The source of a send is copied to scratch first, and a
  /// received message is copied from scratch to its place.
  bool messages = false;
};

/// Returns the staged schedule. It has the same result as `schedule`, and passes verify() if
/// `schedule` does. The scratch chunks that it adds are rings where the steps allow that
/// (pipeline.h), so their size does not grow with the message. Precondition: no step uses memory of
/// another rank.
Schedule stage(const Schedule& schedule, Staging staging);

}  // namespace xylem::collectives
