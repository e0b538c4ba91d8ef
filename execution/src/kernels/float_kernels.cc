// SPDX-License-Identifier: Apache-2.0
//
// The kernels of float32 and float64, on every instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/float_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// Included after the headers of Highway, which choose the target:
#include "kernels/float_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace xylem::execution {
namespace HWY_NAMESPACE {

ReduceKernel choose_float_kernel(RedOp op, DataType type) {
  return type == DataType::float32 ? float_kernel_of<Floating<float>>(op)
                                   : float_kernel_of<Floating<double>>(op);
}

ScaleKernel choose_float_scale(DataType type) {
  return type == DataType::float32 ? &float_scale<Floating<float>> : &float_scale<Floating<double>>;
}

}  // namespace HWY_NAMESPACE
}  // namespace xylem::execution
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace xylem::execution {

HWY_EXPORT(choose_float_kernel);
HWY_EXPORT(choose_float_scale);

ReduceKernel float_kernel(RedOp op, DataType type) noexcept {
  return HWY_DYNAMIC_DISPATCH(choose_float_kernel)(op, type);
}

ScaleKernel float_scale_kernel(DataType type) noexcept {
  return HWY_DYNAMIC_DISPATCH(choose_float_scale)(type);
}

}  // namespace xylem::execution
#endif  // HWY_ONCE
