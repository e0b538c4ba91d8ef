// SPDX-License-Identifier: Apache-2.0
//
// Runs one case at one rank. Checks every element, the guards around the output, and that the input
// has not changed.
#pragma once

#include "conformance/reference.h"
#include "support/buffer_memory.h"
#include "xylem/collectives/planner.h"
#include "xylem/xylem.h"

#include <string>
#include <vector>

namespace xylem::test {

/// The device that holds a rank's buffers, if they are not in host memory.
struct BuffersOnDevice {
  BufferMemory& memory;
  Memory kind;
};

/// Runs a case. Returns what is wrong, or an empty string.
std::string run_case(const Communicator& comm,
                     const Case& one,
                     const BuffersOnDevice* device = nullptr);

std::vector<const collectives::Planner*> all_planners();

}  // namespace xylem::test
