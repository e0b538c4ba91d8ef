// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compute_devices.h"

namespace xylem::runtime {

/// Makes the devices of this machine: CUDA GPUs, if Xylem was built with CUDA. Opens the driver
/// when the first device is made, and loads nothing before.
ComputeDeviceMaker devices_of_machine();

}  // namespace xylem::runtime
