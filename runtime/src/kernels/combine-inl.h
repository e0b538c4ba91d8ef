// SPDX-License-Identifier: Apache-2.0
//
// What combines two vectors: one functor per reduction. Integers wrap (callers pass unsigned lanes
// for sum and product); floating min and max propagate NaN and order -0 below +0, so no result
// depends on a target.

#if defined(XYLEM_KERNELS_COMBINE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef XYLEM_KERNELS_COMBINE_INL_H
#undef XYLEM_KERNELS_COMBINE_INL_H
#else
#define XYLEM_KERNELS_COMBINE_INL_H
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace xylem::runtime {
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

/// Highway's own Min treats NaN and zeros as each instruction set does. Here both selections agree
/// unless the operands are zeros (their or is -0 if either is) or one is NaN (then they are b and
/// a, and an or with a NaN's bits is a NaN).
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
}  // namespace xylem::runtime
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
