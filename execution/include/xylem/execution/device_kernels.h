// SPDX-License-Identifier: Apache-2.0
//
// The numbers and names of the kernels on devices (execution/src/cuda/kernels/arguments.h).
#pragma once

#include "xylem/base/data_type.h"
#include "xylem/execution/reduce_kernel.h"

#include <cstddef>
#include <string>
#include <vector>

namespace xylem::execution {

/// The kernel that reduces like reduce_kernel(op, type). Precondition: check_reduction(op, type) is
/// OK.
KernelId device_reduce_kernel(RedOp op, DataType type) noexcept;
/// The kernel that scales like scale_kernel(type).
KernelId device_scale_kernel(DataType type) noexcept;

/// A kernel that copies if it has one source. Elements have this size: 1, 2, 4 or 8 bytes.
KernelId device_copy_kernel(std::size_t element_bytes) noexcept;
/// The same kernels for any number of targets, which may be buffers of other ranks of a mesh.
KernelId device_exchange_kernel(RedOp op, DataType type) noexcept;
KernelId device_exchange_copy_kernel(std::size_t element_bytes) noexcept;
/// The kernel that sets flags.
KernelId device_signal_kernel() noexcept;

/// The names of all kernels, in the order of their numbers; empty where no kernel has the number.
std::vector<std::string> device_kernel_names();

}  // namespace xylem::execution
