// SPDX-License-Identifier: Apache-2.0
//
// The numbers and names of the device kernels (execution/src/cuda/kernels/arguments.h).
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

/// The kernel that computes the same as that of device_reduce_kernel(), but writes any number of
/// targets. Targets and sources may be buffers of other ranks of a mesh.
KernelId device_exchange_kernel(RedOp op, DataType type) noexcept;
/// Such a kernel for elements of this size: 1, 2, 4 or 8 bytes. It copies if it is launched with
/// one source.
KernelId device_exchange_copy_kernel(std::size_t element_bytes) noexcept;

/// The names of all kernels: element `id` is the name of the kernel with the KernelId `id`, or
/// empty if there is none.
std::vector<std::string> device_kernel_names();

}  // namespace xylem::execution
