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

/// Names of the instruction sets that this CPU can run, best first ("AVX3", "AVX2", "SSE4", …); the
/// first is used. While a target is forced, only its name.
std::vector<std::string_view> kernel_targets();
/// Tests only: makes reduce_kernel() and scale_kernel() use the named target until called with ""
/// again. False, and none is forced, if this CPU cannot run it. Kernels looked up before stay as
/// they were. Not thread-safe.
bool force_kernel_target(std::string_view target);

/// Convert many values of a 16-bit or 8-bit float as the kernels do; exposed for the exhaustive
/// tests and the benchmark.
void widen(float* target, const void* source, std::size_t count, DataType narrow_type);
void narrow(void* target, const float* source, std::size_t count, DataType narrow_type);

}  // namespace xylem::execution
