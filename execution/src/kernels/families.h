// SPDX-License-Identifier: Apache-2.0
//
// The kernels by family of element types. Each family is one translation unit that Highway compiles
// once per instruction set. These functions return the kernels of the instruction set that was
// chosen for this CPU.
#pragma once

#include "xylem/base/data_type.h"
#include "xylem/execution/reduce_kernel.h"

#include <cstddef>
#include <cstdint>

namespace xylem::execution {

using ConvertKernel = void (*)(void* target, const void* source, std::size_t count);

/// For int8 to uint64, and bool. This function and those below return null if the operation is not
/// defined on the type.
ReduceKernel integer_kernel(RedOp op, DataType type) noexcept;

/// For float32 and float64.
ReduceKernel float_kernel(RedOp op, DataType type) noexcept;
ScaleKernel float_scale_kernel(DataType type) noexcept;

/// The kernels of a float that is narrower than fp32.
struct NarrowKernels {
  ReduceKernel (*reduce)(RedOp op) = nullptr;
  ScaleKernel scale = nullptr;
  ConvertKernel widen = nullptr;   ///< To fp32.
  ConvertKernel narrow = nullptr;  ///< From fp32.
};

/// For float16, bfloat16, float8_e4m3 and float8_e5m2. For other types, all members are null.
NarrowKernels narrow_kernels(DataType type) noexcept;

/// Ends the process, because a divisor was passed to a reduction that is not a sum. Not inline, to
/// keep the kernels small.
[[noreturn]] void refuse_divisor(std::uint32_t divisor);

}  // namespace xylem::execution
