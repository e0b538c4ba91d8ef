// SPDX-License-Identifier: Apache-2.0
//
// Runs one case at one rank and checks every element, the guards around the output, and that the
// input was left alone.
#pragma once

#include "conformance/reference.h"
#include "fakes/delayed_compute.h"
#include "xylem/xylem.h"

#include <string>

namespace xylem::test {

/// Where a rank's buffers are, if not in memory of the host.
struct BuffersOnDevice {
  DeviceMemory& memory;
  Memory kind;
};

/// Empty if all is right; otherwise what is wrong.
std::string run_case(const Communicator& comm,
                     const Case& one,
                     const BuffersOnDevice* device = nullptr);

}  // namespace xylem::test
