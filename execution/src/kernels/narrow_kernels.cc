// SPDX-License-Identifier: Apache-2.0
//
// The floats of 16 and 8 bits, on every instruction set: the reductions, computed in fp32, and the
// plain conversions.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/narrow_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// Included after the headers of Highway, which choose the target:
#include "kernels/float_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace xylem::execution {
namespace HWY_NAMESPACE {

template <class From, class To>
void convert(void* target, const void* source, std::size_t count) {
  transform<From, To>(target, source, count);
}

template <class Element>
NarrowKernels kernels_of() {
  return {&float_kernel_of<Element>, &float_scale<Element>, &convert<Element, Floating<float>>,
          &convert<Floating<float>, Element>};
}

NarrowKernels choose_narrow_kernels(DataType type) {
  switch (type) {
    case DataType::float16: return kernels_of<HalfFloat<Float16>>();
    case DataType::bfloat16: return kernels_of<HalfFloat<BFloat16>>();
    case DataType::float8_e4m3: return kernels_of<Float8<Float8E4M3>>();
    case DataType::float8_e5m2: return kernels_of<Float8<Float8E5M2>>();
    default: return {};
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace xylem::execution
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace xylem::execution {

HWY_EXPORT(choose_narrow_kernels);

NarrowKernels narrow_kernels(DataType type) noexcept {
  return HWY_DYNAMIC_DISPATCH(choose_narrow_kernels)(type);
}

}  // namespace xylem::execution
#endif  // HWY_ONCE
