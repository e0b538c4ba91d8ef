// SPDX-License-Identifier: Apache-2.0
//
// float16 and bfloat16, on every instruction set: the reductions, computed in fp32, and the plain
// conversions.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/half_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// Only after Highway has chosen the target:
#include "kernels/float_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace xylem::runtime {
namespace HWY_NAMESPACE {

ReduceKernel choose_half_kernel(RedOp op, DataType type) {
  return type == DataType::float16 ? float_kernel_of<HalfFloat<Float16>>(op)
                                   : float_kernel_of<HalfFloat<BFloat16>>(op);
}

ScaleKernel choose_half_scale(DataType type) {
  return type == DataType::float16 ? &float_scale<HalfFloat<Float16>>
                                   : &float_scale<HalfFloat<BFloat16>>;
}

template <class From, class To>
void convert(void* target, const void* source, std::size_t count) {
  transform<From, To>(target, source, count);
}

ConvertKernel choose_widen(DataType type) {
  return type == DataType::float16 ? &convert<HalfFloat<Float16>, Floating<float>>
                                   : &convert<HalfFloat<BFloat16>, Floating<float>>;
}

ConvertKernel choose_narrow(DataType type) {
  return type == DataType::float16 ? &convert<Floating<float>, HalfFloat<Float16>>
                                   : &convert<Floating<float>, HalfFloat<BFloat16>>;
}

}  // namespace HWY_NAMESPACE
}  // namespace xylem::runtime
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace xylem::runtime {

HWY_EXPORT(choose_half_kernel);
HWY_EXPORT(choose_half_scale);
HWY_EXPORT(choose_widen);
HWY_EXPORT(choose_narrow);

ReduceKernel half_kernel(RedOp op, DataType type) noexcept {
  return HWY_DYNAMIC_DISPATCH(choose_half_kernel)(op, type);
}

ScaleKernel half_scale_kernel(DataType type) noexcept {
  return HWY_DYNAMIC_DISPATCH(choose_half_scale)(type);
}

ConvertKernel widen_kernel(DataType type) noexcept {
  return HWY_DYNAMIC_DISPATCH(choose_widen)(type);
}

ConvertKernel narrow_kernel(DataType type) noexcept {
  return HWY_DYNAMIC_DISPATCH(choose_narrow)(type);
}

}  // namespace xylem::runtime
#endif  // HWY_ONCE
