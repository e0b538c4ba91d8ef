// SPDX-License-Identifier: Apache-2.0
//
// Selects the kernel for an operation and a type.
#include "xylem/execution/host_kernels.h"

#include "kernels/families.h"
#include "xylem/base/check.h"

namespace xylem::execution {
namespace {

bool is_full_float(DataType type) { return type == DataType::float32 || type == DataType::float64; }

}  // namespace

ReduceKernel reduce_kernel(RedOp op, DataType type) noexcept {
  const NarrowKernels narrow_float = narrow_kernels(type);
  const ReduceKernel kernel = narrow_float.reduce != nullptr ? narrow_float.reduce(op)
                              : is_full_float(type)          ? float_kernel(op, type)
                                                             : integer_kernel(op, type);
  XYLEM_CHECK(kernel != nullptr, name(op), name(type));
  return kernel;
}

ScaleKernel scale_kernel(DataType type) noexcept {
  const ScaleKernel kernel =
      is_full_float(type) ? float_scale_kernel(type) : narrow_kernels(type).scale;
  XYLEM_CHECK(kernel != nullptr, name(type));
  return kernel;
}

void widen(float* target, const void* source, std::size_t count, DataType narrow_type) {
  const ConvertKernel kernel = narrow_kernels(narrow_type).widen;
  XYLEM_CHECK(kernel != nullptr, name(narrow_type));
  kernel(target, source, count);
}

void narrow(void* target, const float* source, std::size_t count, DataType narrow_type) {
  const ConvertKernel kernel = narrow_kernels(narrow_type).narrow;
  XYLEM_CHECK(kernel != nullptr, name(narrow_type));
  kernel(target, source, count);
}

void refuse_divisor(std::uint32_t divisor) {
  XYLEM_CHECK(divisor <= 1, divisor);
  __builtin_unreachable();
}

}  // namespace xylem::execution
