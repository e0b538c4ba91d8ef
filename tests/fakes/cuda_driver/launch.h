// SPDX-License-Identifier: Apache-2.0
//
// How a kernel runs on a hardware queue: all threads of a block one after the other, and the blocks
// in an order drawn from the seed.
#pragma once

#include "fakes/cuda_driver/driver.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace xylem::fake_cuda {

struct Launch {
  const execution::cuda::HostKernel* kernel = nullptr;
  std::vector<std::byte> parameters;  ///< A copy, made when the kernel was launched.
  std::uint64_t blocks = 0;
  std::uint64_t threads = 0;  ///< Of one block.
};

/// Runs the kernel. The device is lost if the kernel reaches memory that the device cannot access.
void run_kernel(const Launch& launch, const Run& run);

}  // namespace xylem::fake_cuda
