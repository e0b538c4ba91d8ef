// SPDX-License-Identifier: Apache-2.0
//
// The device kernels as the driver loads them.
#pragma once

#include <cstddef>
#include <span>

namespace xylem::execution::cuda {

/// A fat binary for cuLibraryLoadData: machine code for several GPU architectures and PTX, which
/// the driver compiles for all others. It holds the kernels that kernels/arguments.h names.
std::span<const std::byte> device_kernels() noexcept;

}  // namespace xylem::execution::cuda
