// SPDX-License-Identifier: Apache-2.0
//
// Selects the kernel for an operation and a type.
#include "kernels/reduce.h"

#include "kernels/families.h"
#include "xylem/base/check.h"

namespace xylem::runtime {
namespace {

bool is_half(DataType type) { return type == DataType::float16 || type == DataType::bfloat16; }

bool is_full_float(DataType type) { return type == DataType::float32 || type == DataType::float64; }

}  // namespace

ReduceKernel reduce_kernel(RedOp op, DataType type) noexcept {
  const ReduceKernel kernel = is_half(type)         ? half_kernel(op, type)
                              : is_full_float(type) ? float_kernel(op, type)
                                                    : integer_kernel(op, type);
  XYLEM_CHECK(kernel != nullptr, name(op), name(type));
  return kernel;
}

ScaleKernel scale_kernel(DataType type) noexcept {
  XYLEM_CHECK(is_half(type) || is_full_float(type), name(type));
  return is_half(type) ? half_scale_kernel(type) : float_scale_kernel(type);
}

void widen(float* target, const void* source, std::size_t count, DataType half_type) {
  XYLEM_CHECK(is_half(half_type), name(half_type));
  widen_kernel(half_type)(target, source, count);
}

void narrow(void* target, const float* source, std::size_t count, DataType half_type) {
  XYLEM_CHECK(is_half(half_type), name(half_type));
  narrow_kernel(half_type)(target, source, count);
}

void refuse_divisor(std::uint32_t divisor) {
  XYLEM_CHECK(divisor <= 1, divisor);
  __builtin_unreachable();
}

}  // namespace xylem::runtime
