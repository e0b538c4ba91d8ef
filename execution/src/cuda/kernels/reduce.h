// SPDX-License-Identifier: Apache-2.0
//
// The bodies of the device kernels: what one thread of a launch does.
//
// If all addresses are equally far from a boundary of 16 bytes, the elements between two boundaries
// are read and written together, as a vector. The elements before the first and after the last
// boundary, or all elements if the addresses differ, are read and written one by one:
//
//   boundaries   |             |             |             |
//   elements           0  1  2  3  4  5  6  7  8  9 10 11           (four in a vector)
//   vectors                    |      0      |      1      |
//   singles            0  1  2                               3
//
// Vector v and single s belong to threads v % threads and s % threads.
#pragma once

#include "cuda/kernels/arguments.h"
#include "cuda/kernels/element.h"

#include <cstdint>
#include <type_traits>

namespace xylem::execution::cuda {

/// The share of a launch that one thread has: first, first + stride, …
struct Place {
  std::uint64_t first;
  std::uint64_t stride;
};

inline constexpr std::uint32_t kVectorBytes = 16;

/// Elements that are read and written together.
template <class Element, std::uint32_t Lanes>
struct alignas(Lanes * sizeof(typename Element::Stored)) Pack {
  typename Element::Stored lanes[Lanes];
};

/// target[i] = finish(op(… op(op(s0[i], s1[i]), s2[i]) …)).
template <class Element, class Op, class Finish>
struct Fold {
  using Stored = typename Element::Stored;

  void* target;
  const void* const* sources;
  std::uint32_t source_count;
  Finish finish;

  /// Computes the elements `index` to `index` + Lanes - 1. Each source is loaded before the
  /// previous one is combined, so that a thread waits for two at once. Unrolled by nvcc, the loop
  /// loads no earlier, and all kernels are more than twice as large.
  template <std::uint32_t Lanes>
  XYLEM_DEVICE void apply(std::uint64_t index) const {
    using Vector = Pack<Element, Lanes>;
    const auto load = [&](std::uint32_t k) {
      return *reinterpret_cast<const Vector*>(static_cast<const Stored*>(sources[k]) + index);
    };
    typename Element::Value folded[Lanes] = {};
    Vector next = load(0);
    XYLEM_NO_UNROLL for (std::uint32_t k = 0; k < source_count; ++k) {
      const Vector source = next;
      if (k + 1 < source_count) next = load(k + 1);
      XYLEM_UNROLL for (std::uint32_t i = 0; i < Lanes; ++i) {
        const auto value = Element::load(source.lanes[i]);
        folded[i] = k == 0 ? value : Op::combine(folded[i], value);
      }
    }
    Vector result;
    XYLEM_UNROLL for (std::uint32_t i = 0; i < Lanes; ++i) {
      result.lanes[i] = Element::store(finish(folded[i]));
    }
    *reinterpret_cast<Vector*>(static_cast<Stored*>(target) + index) = result;
  }

  /// Bytes from the last boundary to each address if that is the same for all of them; otherwise
  /// kVectorBytes.
  XYLEM_DEVICE std::uint32_t misalignment() const {
    const auto address = reinterpret_cast<std::uintptr_t>(target);
    std::uintptr_t differences = 0;
    XYLEM_NO_UNROLL for (std::uint32_t k = 0; k < source_count; ++k) {
      differences |= reinterpret_cast<std::uintptr_t>(sources[k]) ^ address;
    }
    return differences % kVectorBytes == 0 ? address % kVectorBytes : kVectorBytes;
  }
};

/// Applies a thread's share of a fold of `count` elements.
template <class Element, class Op, class Finish>
XYLEM_DEVICE void for_each(const Fold<Element, Op, Finish>& fold,
                           std::uint64_t count,
                           const Place& place) {
  constexpr std::uint32_t kSize = sizeof(typename Element::Stored);
  constexpr std::uint32_t kLanes = kVectorBytes / kSize;
  const std::uint32_t misalignment = fold.misalignment();
  std::uint64_t head = (kVectorBytes - misalignment) / kSize % kLanes;
  if (head > count) head = count;
  const std::uint64_t vectors = misalignment < kVectorBytes ? (count - head) / kLanes : 0;

  for (std::uint64_t v = place.first; v < vectors; v += place.stride) {
    fold.template apply<kLanes>(head + v * kLanes);
  }
  const std::uint64_t singles = count - vectors * kLanes;
  for (std::uint64_t s = place.first; s < singles; s += place.stride) {
    fold.template apply<1>(s < head ? s : s + vectors * kLanes);
  }
}

/// Whether the kernel must do nothing.
XYLEM_DEVICE bool is_stopped(const std::uint32_t* stop) {
  if (stop == nullptr) return false;
#ifdef __CUDA_ARCH__
  return *static_cast<const volatile std::uint32_t*>(stop) != 0;
#else
  return __atomic_load_n(stop, __ATOMIC_ACQUIRE) != 0;
#endif
}

XYLEM_DEVICE void signal(const SignalArguments& a, const Place& place) {
  if (is_stopped(a.stop)) return;
#ifdef __CUDA_ARCH__
  __threadfence_system();
#endif
  for (std::uint64_t i = place.first; i < a.count; i += place.stride) {
#ifdef __CUDA_ARCH__
    *static_cast<volatile std::uint32_t*>(a.flags[i]) = 1;
#else
    __atomic_store_n(a.flags[i], 1U, __ATOMIC_RELEASE);
#endif
  }
}

template <class Element, class Op>
XYLEM_DEVICE void reduce_n(const ReduceArguments& a, const Place& place) {
  if (is_stopped(a.stop)) return;
  // A bool has no average.
  if constexpr (std::is_same_v<Op, Sum> && !std::is_same_v<typename Element::Value, bool>) {
    if (a.divisor > 1) {
      const Fold<Element, Op, DivideBy> fold{a.target, a.sources, a.source_count, {a.divisor}};
      return for_each(fold, a.count, place);
    }
  }
  for_each(Fold<Element, Op, Keep>{a.target, a.sources, a.source_count, {}}, a.count, place);
}

template <class Element>
XYLEM_DEVICE void scale(const ScaleArguments& a, const Place& place) {
  if (is_stopped(a.stop)) return;
  using Multiply = MultiplyBy<typename Element::Value>;
  const Multiply multiply{static_cast<typename Element::Value>(a.factor)};
  for_each(Fold<Element, Sum, Multiply>{a.target, &a.source, 1, multiply}, a.count, place);
}

}  // namespace xylem::execution::cuda
