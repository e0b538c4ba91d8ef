// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compute_devices.h"
#include "cuda/driver.h"

#include <cstdint>
#include <memory>

namespace xylem::runtime {

/// A CUDA device with all kernels. `memory` is that of the device; `queues` streams compute.
Result<ComputeDevice> make_cuda_device(std::shared_ptr<const execution::cuda::Driver> driver,
                                       const Memory& memory,
                                       std::uint32_t queues = 4);

}  // namespace xylem::runtime
