// SPDX-License-Identifier: Apache-2.0
//
// Reduction kernels on host memory: one pass over n sources, vectorised with run-time dispatch.
// Floats of 16 and 8 bits are widened to fp32, combined in source order, and rounded once to
// nearest even.
#pragma once

#include "xylem/base/data_type.h"
#include "xylem/execution/reduce_kernel.h"

#include <cstddef>
#include <string_view>
#include <vector>

namespace xylem::execution {

/// The kernel for a checked (op, type) on this CPU. Look it up once per plan, not per step.
/// Precondition: check_reduction(op, type) is OK.
ReduceKernel reduce_kernel(RedOp op, DataType type) noexcept;

/// The kernel that multiplies elements of a floating-point type on this CPU, in fp32 (fp64 for
/// float64), rounded once.
ScaleKernel scale_kernel(DataType type) noexcept;

/// Names of the instruction sets for which kernels exist and which this CPU can run, best first
/// ("AVX3", "AVX2", "SSE4", …). The kernels use the first. While force_kernel_target() forces an
/// instruction set, the list has only its name.
std::vector<std::string_view> kernel_targets();
/// For tests only. Makes reduce_kernel() and scale_kernel() return kernels for the named
/// instruction set, until this is called with "". Returns false, and forces no instruction set, if
/// this CPU cannot run the named one. Kernels that were looked up before do not change. Not
/// thread-safe.
bool force_kernel_target(std::string_view target);

/// Convert values from and to a 16-bit or 8-bit float type, exactly as the kernels do. For
/// exhaustive tests and for the benchmark.
void widen(float* target, const void* source, std::size_t count, DataType narrow_type);
void narrow(void* target, const float* source, std::size_t count, DataType narrow_type);

}  // namespace xylem::execution
