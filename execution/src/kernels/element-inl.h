// SPDX-License-Identifier: Apache-2.0
//
// Loads elements from memory into the lanes of vectors, and stores them. `Lane` is the type of
// computation: fp32 for floats of 16 and 8 bits, the element type or a wider one otherwise. `index`
// counts elements. Addresses need only the element's alignment.

#if defined(XYLEM_KERNELS_ELEMENT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef XYLEM_KERNELS_ELEMENT_INL_H
#undef XYLEM_KERNELS_ELEMENT_INL_H
#else
#define XYLEM_KERNELS_ELEMENT_INL_H
#endif

#include "kernels/convert-inl.h"

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace xylem::execution {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// An integer, computed in its own width.
template <class T>
struct Integer {
  using Lane = T;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const void* from, std::size_t index) {
    return hn::LoadU(d, static_cast<const T*>(from) + index);
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> v, void* to, std::size_t index) {
    hn::StoreU(v, d, static_cast<T*>(to) + index);
  }
};

/// A byte in a sixteen-bit lane, since no instruction set multiplies bytes.
struct WidenedByte {
  using Lane = std::uint16_t;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const void* from, std::size_t index) {
    const hn::Rebind<std::uint8_t, D> d8;
    return hn::PromoteTo(d, hn::LoadU(d8, static_cast<const std::uint8_t*>(from) + index));
  }
  template <class D>
  static HWY_INLINE void store(D, hn::Vec<D> v, void* to, std::size_t index) {
    const hn::Rebind<std::uint8_t, D> d8;
    hn::StoreU(hn::TruncateTo(d8, v), d8, static_cast<std::uint8_t*>(to) + index);
  }
};

/// A byte that is false if it is zero, and otherwise true. It is loaded as 0 or 1.
struct Boolean : Integer<std::uint8_t> {
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const void* from, std::size_t index) {
    return hn::Min(Integer<std::uint8_t>::load(d, from, index), hn::Set(d, std::uint8_t{1}));
  }
};

/// fp32 and fp64.
template <class T>
struct Floating {
  using Lane = T;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const void* from, std::size_t index) {
    return hn::LoadU(d, static_cast<const T*>(from) + index);
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> v, void* to, std::size_t index) {
    hn::StoreU(with_one_nan(d, v), d, static_cast<T*>(to) + index);
  }
};

/// A sixteen-bit float in an fp32 lane. `Format` is Float16 or BFloat16.
template <class Format>
struct HalfFloat {
  using Lane = float;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const void* from, std::size_t index) {
    const hn::Rebind<std::uint16_t, D> d16;
    return Format::widen(d, hn::LoadU(d16, static_cast<const std::uint16_t*>(from) + index));
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> v, void* to, std::size_t index) {
    const hn::Rebind<std::uint16_t, D> d16;
    hn::StoreU(Format::narrow(d, v), d16, static_cast<std::uint16_t*>(to) + index);
  }

  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE void load_pair(D d, const void* from, std::size_t index, V& a, V& b) requires(
      Format::kInPairs) {
    const hn::Repartition<std::uint16_t, D> d16;
    const auto both = hn::LoadU(d16, static_cast<const std::uint16_t*>(from) + index);
    Format::widen_pair(d, hn::BitCast(hn::RebindToUnsigned<D>(), both), a, b);
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE void store_pair(D d, V a, V b, void* to, std::size_t index) requires(
      Format::kInPairs) {
    const hn::Repartition<std::uint16_t, D> d16;
    hn::StoreU(hn::BitCast(d16, Format::narrow_pair(d, a, b)), d16,
               static_cast<std::uint16_t*>(to) + index);
  }
};

/// An 8-bit float in an fp32 lane. `Format` is Float8E4M3 or Float8E5M2.
template <class Format>
struct Float8 {
  using Lane = float;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const void* from, std::size_t index) {
    const hn::Rebind<std::uint8_t, D> d8;
    const hn::Rebind<std::uint16_t, D> d16;
    const auto bytes = hn::LoadU(d8, static_cast<const std::uint8_t*>(from) + index);
    const auto upper = hn::ShiftLeft<8>(hn::PromoteTo(d16, bytes));
    return widen_half<Format>(d, Format::half(d16, upper));
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> v, void* to, std::size_t index) {
    const hn::Rebind<std::uint8_t, D> d8;
    hn::StoreU(hn::TruncateTo(d8, narrow_to_byte<Format>(d, v)), d8,
               static_cast<std::uint8_t*>(to) + index);
  }

#if HWY_TARGET != HWY_SCALAR  // The vectors of HWY_SCALAR have one lane.
  /// `a` and `c` get the elements at even places, `b` and `e` those at odd places. So no byte moves
  /// between 16-bit lanes, and one operation converts as many elements as possible to fp16.
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE void load_four(
      D d, const void* from, std::size_t index, V& a, V& b, V& c, V& e) {
    const hn::Repartition<std::uint8_t, D> d8;
    const hn::Repartition<std::uint16_t, D> d16;
    const hn::Half<decltype(d16)> dh;
    const auto both =
        hn::BitCast(d16, hn::LoadU(d8, static_cast<const std::uint8_t*>(from) + index));
    const auto even = Format::half(d16, hn::ShiftLeft<8>(both));
    const auto odd = Format::half(d16, hn::And(both, hn::Set(d16, std::uint16_t{0xFF00})));
    a = widen_half<Format>(d, hn::LowerHalf(dh, even));
    b = widen_half<Format>(d, hn::LowerHalf(dh, odd));
    c = widen_half<Format>(d, hn::UpperHalf(dh, even));
    e = widen_half<Format>(d, hn::UpperHalf(dh, odd));
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE void store_pair(D d, V a, V b, void* to, std::size_t index) {
    const hn::Rebind<std::uint16_t, D> d16;
    const hn::Repartition<std::uint8_t, decltype(d16)> d8;
    const auto both =
        hn::Or(narrow_to_byte<Format>(d, a), hn::ShiftLeft<8>(narrow_to_byte<Format>(d, b)));
    hn::StoreU(hn::BitCast(d8, hn::TruncateTo(d16, both)), d8,
               static_cast<std::uint8_t*>(to) + index);
  }
#endif
};

/// Loads the elements of two vectors. The elements have the order of memory, unless the element
/// type has a faster order. store_pair() writes each element back to the place from which it was
/// loaded.
template <class Element, class D, class V = hn::Vec<D>>
HWY_INLINE void load_pair(D d, const void* from, std::size_t index, V& a, V& b) {
  if constexpr (requires { Element::load_pair(d, from, index, a, b); }) {
    Element::load_pair(d, from, index, a, b);
  } else {
    a = Element::load(d, from, index);
    b = Element::load(d, from, index + hn::Lanes(d));
  }
}
/// Loads the elements of four vectors. Write them back with store_pair(): first `a` and `b`, then
/// `c` and `e`.
template <class Element, class D, class V = hn::Vec<D>>
HWY_INLINE void load_four(D d, const void* from, std::size_t index, V& a, V& b, V& c, V& e) {
  if constexpr (requires { Element::load_four(d, from, index, a, b, c, e); }) {
    Element::load_four(d, from, index, a, b, c, e);
  } else {
    load_pair<Element>(d, from, index, a, b);
    load_pair<Element>(d, from, index + 2 * hn::Lanes(d), c, e);
  }
}
template <class Element, class D, class V = hn::Vec<D>>
HWY_INLINE void store_pair(D d, V a, V b, void* to, std::size_t index) {
  if constexpr (requires { Element::store_pair(d, a, b, to, index); }) {
    Element::store_pair(d, a, b, to, index);
  } else {
    Element::store(d, a, to, index);
    Element::store(d, b, to, index + hn::Lanes(d));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace xylem::execution
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
