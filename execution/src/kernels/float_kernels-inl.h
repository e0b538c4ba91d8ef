// SPDX-License-Identifier: Apache-2.0
//
// The reductions of a floating element type, which in memory is fp8 (E4M3 or E5M2), fp16, bf16,
// fp32 or fp64.

#if defined(XYLEM_KERNELS_FLOAT_KERNELS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef XYLEM_KERNELS_FLOAT_KERNELS_INL_H
#undef XYLEM_KERNELS_FLOAT_KERNELS_INL_H
#else
#define XYLEM_KERNELS_FLOAT_KERNELS_INL_H
#endif

#include "kernels/combine-inl.h"
#include "kernels/element-inl.h"
#include "kernels/families.h"
#include "kernels/fold-inl.h"

#include <hwy/highway.h>

#include <cstddef>

HWY_BEFORE_NAMESPACE();
namespace xylem::execution {
namespace HWY_NAMESPACE {

template <class Element>
void float_sum(void* target,
               const void* const* sources,
               std::size_t source_count,
               std::size_t count,
               Finish finish) {
  using Lane = typename Element::Lane;
  if (finish.divisor > 1) {
    const DivideBy<Lane> divide{static_cast<Lane>(finish.divisor)};
    fold<Element, Sum>(target, sources, source_count, 0, count, divide);
  } else {
    fold<Element, Sum>(target, sources, source_count, 0, count);
  }
}

/// A reduction that does not end in a division.
template <class Element, class Op>
void float_other(void* target,
                 const void* const* sources,
                 std::size_t source_count,
                 std::size_t count,
                 Finish finish) {
  if (finish.divisor > 1) refuse_divisor(finish.divisor);
  fold<Element, Op>(target, sources, source_count, 0, count);
}

template <class Element>
ReduceKernel float_kernel_of(RedOp op) {
  switch (op) {
    case RedOp::sum:
    case RedOp::avg:
    case RedOp::premul_sum: return &float_sum<Element>;
    case RedOp::product: return &float_other<Element, Product>;
    case RedOp::min: return &float_other<Element, FloatMin>;
    case RedOp::max: return &float_other<Element, FloatMax>;
    case RedOp::bit_and:
    case RedOp::bit_or:
    case RedOp::bit_xor: return nullptr;
  }
  return nullptr;
}

template <class Element>
void float_scale(void* target, const void* source, std::size_t count, double factor) {
  using Lane = typename Element::Lane;
  transform<Element, Element>(target, source, count, MultiplyBy<Lane>{static_cast<Lane>(factor)});
}

}  // namespace HWY_NAMESPACE
}  // namespace xylem::execution
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
