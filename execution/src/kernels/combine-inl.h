// SPDX-License-Identifier: Apache-2.0
//
// Functors that combine two vectors, one per reduction. Integers wrap (callers pass unsigned lanes
// for sum and product). Floating min and max propagate NaN and order -0 below +0, so that results
// are the same on every target.

#if defined(XYLEM_KERNELS_COMBINE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef XYLEM_KERNELS_COMBINE_INL_H
#undef XYLEM_KERNELS_COMBINE_INL_H
#else
#define XYLEM_KERNELS_COMBINE_INL_H
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace xylem::execution {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct Sum {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
};

struct Product {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Mul(a, b);
  }
};

struct BitAnd {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::And(a, b);
  }
};

struct BitOr {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Or(a, b);
  }
};

struct BitXor {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Xor(a, b);
  }
};

struct IntegerMin {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Min(a, b);
  }
};

struct IntegerMax {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Max(a, b);
  }
};

/// Highway's own Min treats NaN and zeros differently on each instruction set. FloatMin selects the
/// lesser operand twice, once by a < b and once by b < a, and combines the two selections by a
/// bitwise or. The selections differ in two cases only. If both operands are zeros, the or is -0 if
/// either is -0. If one operand is NaN, the selections are b and a, and an or with the bits of a
/// NaN is a NaN.
struct FloatMin {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Or(hn::IfThenElse(hn::Lt(a, b), a, b), hn::IfThenElse(hn::Lt(b, a), b, a));
  }
};

struct FloatMax {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Neg(FloatMin()(hn::Neg(a), hn::Neg(b)));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace xylem::execution
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
