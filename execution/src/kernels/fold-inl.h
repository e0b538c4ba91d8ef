// SPDX-License-Identifier: Apache-2.0
//
// The loops of every kernel. Whatever the count, each element goes through the same vector code.
// The remainder is computed in one more vector, which ends at the last element and overlaps the
// previous vector. If there are fewer elements than lanes, the next smaller vector is used.
//
//   count = 11, 4 lanes:   [0 1 2 3][4 5 6 7][. . . .        two whole vectors,
//                                        [7 8 9 10]          and the last, computed first, stored
//                                        last
//
// The last vector is computed before anything is stored. Otherwise the overlapping elements would
// be wrong if the target is one of the sources.

#if defined(XYLEM_KERNELS_FOLD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef XYLEM_KERNELS_FOLD_INL_H
#undef XYLEM_KERNELS_FOLD_INL_H
#else
#define XYLEM_KERNELS_FOLD_INL_H
#endif

#include <hwy/highway.h>

#include <array>
#include <cstddef>

HWY_BEFORE_NAMESPACE();
namespace xylem::execution {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Applies a body to count ≤ 2 Lanes(d) elements. A body has three functions: compute(d, index) →
/// vector reads the elements from `index` on; store(d, vector, index) writes a vector from `index`
/// on; apply_four(d, index) does both for four vectors.
template <class D, class Body>
HWY_INLINE void for_few(D d, const Body& body, std::size_t count) {
  const std::size_t lanes = hn::Lanes(d);
  if (count < lanes) {
    if constexpr (hn::MaxLanes(D()) > 1) for_few(hn::Half<D>(), body, count);
    return;
  }
  const auto first = body.compute(d, 0);
  const auto last = body.compute(d, count - lanes);
  body.store(d, first, 0);
  body.store(d, last, count - lanes);
}

/// Applies a body to count ≥ 2 Lanes(d) elements.
template <class D, class Body>
HWY_INLINE void for_many(D d, const Body& body, std::size_t count) {
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t last = count - lanes;
  const auto remainder = body.compute(d, last);
  std::size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) body.apply_four(d, i);
  for (; i < last; i += lanes) body.store(d, body.compute(d, i), i);
  body.store(d, remainder, last);
}

/// Leaves a folded value as it is.
struct Keep {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D, hn::Vec<D> v) const {
    return v;
  }
};

/// Ends an average by a division, rounded correctly.
template <class Lane>
struct DivideBy {
  Lane divisor;

  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> v) const {
    return hn::Div(v, hn::Set(d, divisor));
  }
};

/// Scales, rounding once.
template <class Lane>
struct MultiplyBy {
  Lane factor;

  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> v) const {
    return hn::Mul(v, hn::Set(d, factor));
  }
};

/// target[i] = finish(source[i]), read as `From` and written as `To`, which have the same lane.
template <class From, class To, class Finish>
struct Transform {
  void* target;
  const void* source;
  Finish finish;

  template <class D>
  HWY_INLINE hn::Vec<D> compute(D d, std::size_t index) const {
    return finish(d, From::load(d, source, index));
  }
  template <class D>
  HWY_INLINE void store(D d, hn::Vec<D> v, std::size_t index) const {
    To::store(d, v, target, index);
  }
  template <class D>
  HWY_INLINE void apply_four(D d, std::size_t index) const {
    const std::size_t lanes = hn::Lanes(d);
    for (std::size_t v = 0; v < 4; ++v) {
      store(d, compute(d, index + v * lanes), index + v * lanes);
    }
  }
};

/// Transforms `count` elements.
template <class From, class To, class Finish = Keep>
HWY_INLINE void transform(void* target, const void* source, std::size_t count, Finish finish = {}) {
  const hn::ScalableTag<typename From::Lane> d;
  const Transform<From, To, Finish> body{target, source, finish};
  count < 2 * hn::Lanes(d) ? for_few(d, body, count) : for_many(d, body, count);
}

/// Any number of sources, at addresses in the caller's array.
struct AnySources {
  const void* const* sources;
  std::size_t count;

  HWY_INLINE const void* operator[](std::size_t k) const { return sources[k]; }
  HWY_INLINE std::size_t size() const { return count; }
};

/// A number of sources known at compile time: the addresses stay in registers, and the loop over
/// them is unrolled.
template <std::size_t Count>
struct FixedSources {
  std::array<const void*, Count> sources;

  explicit FixedSources(const void* const* from) {
    for (std::size_t k = 0; k < Count; ++k) sources[k] = from[k];
  }
  HWY_INLINE const void* operator[](std::size_t k) const { return sources[k]; }
  static constexpr std::size_t size() { return Count; }
};

/// target[i] = finish(op(… op(op(s0[i], s1[i]), s2[i]) …)), with elements counted from `begin`.
template <class Element, class Op, class Sources, class Finish>
struct Fold {
  void* target;
  Sources sources;
  Finish finish;
  std::size_t begin;

  template <class D>
  HWY_INLINE hn::Vec<D> compute(D d, std::size_t index) const {
    auto folded = load(d, 0, index);
    for (std::size_t k = 1; k < sources.size(); ++k) folded = Op()(folded, load(d, k, index));
    return finish(d, folded);
  }
  template <class D>
  HWY_INLINE void store(D d, hn::Vec<D> v, std::size_t index) const {
    Element::store(d, v, target, begin + index);
  }
  /// Computes four vectors at once, since in one chain each addition waits for the previous
  /// addition. All loads come before the stores, since the target may be one of the sources.
  template <class D>
  HWY_INLINE void apply_four(D d, std::size_t i0) const {
    const std::size_t i2 = i0 + 2 * hn::Lanes(d);
    hn::Vec<D> f0, f1, f2, f3, s0, s1, s2, s3;
    load_four<Element>(d, sources[0], begin + i0, f0, f1, f2, f3);
    for (std::size_t k = 1; k < sources.size(); ++k) {
      load_four<Element>(d, sources[k], begin + i0, s0, s1, s2, s3);
      f0 = Op()(f0, s0);
      f1 = Op()(f1, s1);
      f2 = Op()(f2, s2);
      f3 = Op()(f3, s3);
    }
    store_pair<Element>(d, finish(d, f0), finish(d, f1), target, begin + i0);
    store_pair<Element>(d, finish(d, f2), finish(d, f3), target, begin + i2);
  }

 private:
  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, std::size_t source, std::size_t index) const {
    return Element::load(d, sources[source], begin + index);
  }
};

/// Folds elements [begin, begin + count) of the sources into the target.
template <class Element, class Op, class Finish = Keep>
HWY_INLINE void fold(void* target,
                     const void* const* sources,
                     std::size_t source_count,
                     std::size_t begin,
                     std::size_t count,
                     Finish finish = {}) {
  const hn::ScalableTag<typename Element::Lane> d;
  const Fold<Element, Op, AnySources, Finish> any{target, {sources, source_count}, finish, begin};
  if (count < 2 * hn::Lanes(d)) {
    for_few(d, any, count);
  } else if (source_count == 2) {
    const FixedSources<2> two(sources);
    for_many(d, Fold<Element, Op, FixedSources<2>, Finish>{target, two, finish, begin}, count);
  } else {
    for_many(d, any, count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace xylem::execution
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
