// SPDX-License-Identifier: Apache-2.0
//
// Runs a kernel on a hardware queue: the blocks one after another, in an order drawn from the seed.
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
  std::uint64_t threads = 0;  ///< Threads of one block.
};

/// Runs the kernel. If the kernel accesses memory that the device cannot access, the device is
/// lost.
void run_kernel(const Launch& launch, const Run& run);

}  // namespace xylem::fake_cuda
