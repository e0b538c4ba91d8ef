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

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace xylem::execution::cuda {

/// The vectors or elements of a launch that belong to one thread: first, first + stride, …
struct Place {
  std::uint64_t first;
  std::uint64_t stride;
};

inline constexpr std::uint32_t kVectorBytes = 16;

/// A thread loads a vector from each of this many sources before it uses the first.
inline constexpr std::uint32_t kSourcesAtOnce = 2;

/// Elements that are read and written together. They are held in words of 32 bits, if the elements
/// are smaller, because the registers of a device have this size. In lanes of 8 or 16 bits, each
/// element would occupy a register as soon as it is loaded.
template <class Element, std::uint32_t Lanes>
struct [[gnu::may_alias]] alignas(Lanes * sizeof(typename Element::Stored)) Pack {
  using Stored = typename Element::Stored;
  using Value = typename Element::Value;
  static constexpr bool kIsSplit = Lanes > 1 && sizeof(Stored) < sizeof(std::uint32_t);
  using Word = std::conditional_t<kIsSplit, std::uint32_t, Bits<Stored>>;
  static constexpr std::uint32_t kWords = Lanes * sizeof(Stored) / sizeof(Word);
  // NOLINTNEXTLINE(bugprone-sizeof-expression): they may be the same type
  static constexpr std::uint32_t kWordLanes = sizeof(Word) / sizeof(Stored);
  static constexpr std::uint32_t kLaneBits = 8 * sizeof(Stored);

  Word words[kWords];

  XYLEM_DEVICE void unpack(Value* values) const {
    XYLEM_PRAGMA(unroll) for (std::uint32_t w = 0; w < kWords; ++w) {
      if constexpr (kIsSplit && requires { Element::load_pair(0U, values); }) {
        XYLEM_PRAGMA(unroll) for (std::uint32_t i = 0; i < kWordLanes; i += 2) {
          Element::load_pair(words[w] >> (i * kLaneBits), values + w * kWordLanes + i);
        }
      } else {
        XYLEM_PRAGMA(unroll) for (std::uint32_t i = 0; i < kWordLanes; ++i) {
          const auto lane = static_cast<Bits<Stored>>(words[w] >> (i * kLaneBits));
          values[w * kWordLanes + i] = Element::load(bit_cast<Stored>(lane));
        }
      }
    }
  }

  XYLEM_DEVICE void pack(const Value* values) {
    if constexpr (kIsSplit && requires { Element::store_pair(*values, *values); }) {
      bool is_plain = true;
      XYLEM_PRAGMA(unroll) for (std::uint32_t i = 0; i < Lanes; ++i) {
        is_plain = is_plain & Element::is_plain(values[i]);
      }
      if (is_plain) return pack_pairs(values);
    }
    XYLEM_PRAGMA(unroll) for (std::uint32_t w = 0; w < kWords; ++w) {
      Word word = 0;
      XYLEM_PRAGMA(unroll) for (std::uint32_t i = 0; i < kWordLanes; ++i) {
        const auto stored = Element::store(values[w * kWordLanes + i]);
        word |= static_cast<Word>(bit_cast<Bits<Stored>>(stored)) << (i * kLaneBits);
      }
      words[w] = word;
    }
  }

 private:
  XYLEM_DEVICE void pack_pairs(const Value* values) {
    XYLEM_PRAGMA(unroll) for (std::uint32_t w = 0; w < kWords; ++w) {
      Word word = 0;
      XYLEM_PRAGMA(unroll) for (std::uint32_t i = 0; i < kWordLanes; i += 2) {
        const Value* pair = values + w * kWordLanes + i;
        word |= static_cast<Word>(Element::store_pair(pair[0], pair[1])) << (i * kLaneBits);
      }
      words[w] = word;
    }
  }
};

/// Returns an address, and lets the compiler assume that it is in global memory. The compiler knows
/// this of addresses in a kernel's parameters, but not of addresses that a kernel computes. Its
/// instructions for the latter would be slower.
template <class T>
XYLEM_DEVICE T* of_data(T* address) {
#ifdef __CUDA_ARCH__
  __builtin_assume(__isGlobal(address));
#endif
  return address;
}

/// The target of a reduction that has only one target.
struct OneTarget {
  void* target;

  template <class Vector>
  XYLEM_DEVICE void store(std::uint64_t offset, const Vector& result) const {
    *reinterpret_cast<Vector*>(static_cast<std::byte*>(target) + offset) = result;
  }
  XYLEM_DEVICE std::uintptr_t first() const { return reinterpret_cast<std::uintptr_t>(target); }
  /// The bits in which the addresses of targets differ.
  XYLEM_DEVICE static std::uintptr_t differences() { return 0; }
};

/// The targets of a reduction, at least one.
struct ManyTargets {
  void* const* targets;
  std::uint32_t count;

  template <class Vector>
  XYLEM_DEVICE void store(std::uint64_t offset, const Vector& result) const {
    XYLEM_PRAGMA(unroll 1) for (std::uint32_t k = 0; k < count; ++k) {
      OneTarget{of_data(targets[k])}.store(offset, result);
    }
  }
  XYLEM_DEVICE std::uintptr_t first() const { return reinterpret_cast<std::uintptr_t>(targets[0]); }
  XYLEM_DEVICE std::uintptr_t differences() const {
    std::uintptr_t differences = 0;
    XYLEM_PRAGMA(unroll 1) for (std::uint32_t k = 1; k < count; ++k) {
      differences |= reinterpret_cast<std::uintptr_t>(targets[k]) ^ first();
    }
    return differences;
  }
};

/// target[i] = finish(op(… op(op(s0[i], s1[i]), s2[i]) …)).
template <class Element, class Op, class Finish, class Target = OneTarget>
struct Fold {
  using Stored = typename Element::Stored;
  using Value = typename Element::Value;

  Target target;
  const void* const* sources;
  std::uint32_t source_count;
  Finish finish;

  /// Computes `Lanes` elements, which begin at byte `offset`. Sources are loaded in groups: a
  /// thread issues all loads of a group before it uses the first result, so that all of them are in
  /// flight at once. The number of bytes in flight determines how fast a device reads.
  template <std::uint32_t Lanes>
  XYLEM_DEVICE void apply(std::uint64_t offset) const {
    using Vector = Pack<Element, Lanes>;
    Value folded[Lanes] = {};
    XYLEM_PRAGMA(unroll 1) for (std::uint32_t k = 0; k < source_count; k += kSourcesAtOnce) {
      Vector loaded[kSourcesAtOnce] = {};
      XYLEM_PRAGMA(unroll) for (std::uint32_t j = 0; j < kSourcesAtOnce; ++j) {
        if (k + j < source_count) {
          const auto* const source = static_cast<const std::byte*>(of_data(sources[k + j]));
          loaded[j] = *reinterpret_cast<const Vector*>(source + offset);
        }
      }
      XYLEM_PRAGMA(unroll) for (std::uint32_t j = 0; j < kSourcesAtOnce; ++j) {
        if (k + j < source_count) {
          Value values[Lanes];
          loaded[j].unpack(values);
          XYLEM_PRAGMA(unroll) for (std::uint32_t i = 0; i < Lanes; ++i) {
            folded[i] = k + j == 0 ? values[i] : Op::combine(folded[i], values[i]);
          }
        }
      }
    }
    finish.template apply<Lanes>(folded);
    Vector result;
    result.pack(folded);
    target.store(offset, result);
  }

  /// The number of bytes between the preceding boundary of 16 bytes and each address, if it is the
  /// same for all addresses; otherwise kVectorBytes.
  XYLEM_DEVICE std::uint32_t misalignment() const {
    const std::uintptr_t address = target.first();
    std::uintptr_t differences = target.differences();
    XYLEM_PRAGMA(unroll 1) for (std::uint32_t k = 0; k < source_count; ++k) {
      differences |= reinterpret_cast<std::uintptr_t>(sources[k]) ^ address;
    }
    return differences % kVectorBytes == 0 ? address % kVectorBytes : kVectorBytes;
  }
};

/// Computes the vectors and elements of a fold that belong to a thread; the fold has `count`
/// elements.
template <class Element, class Op, class Finish, class Target>
XYLEM_DEVICE void for_each(const Fold<Element, Op, Finish, Target>& fold,
                           std::uint64_t count,
                           const Place& place) {
  constexpr std::uint32_t kSize = sizeof(typename Element::Stored);
  constexpr std::uint32_t kLanes = kVectorBytes / kSize;
  const std::uint32_t misalignment = fold.misalignment();
  std::uint64_t head = (kVectorBytes - misalignment) / kSize % kLanes;
  if (head > count) head = count;
  const std::uint64_t vectors = misalignment < kVectorBytes ? (count - head) / kLanes : 0;

  const std::uint64_t end = head * kSize + vectors * kVectorBytes;
  std::uint64_t offset = head * kSize + place.first * kVectorBytes;
  for (; offset < end; offset += place.stride * kVectorBytes) fold.template apply<kLanes>(offset);

  const std::uint64_t singles = count - vectors * kLanes;
  for (std::uint64_t s = place.first; s < singles; s += place.stride) {
    fold.template apply<1>((s < head ? s : s + vectors * kLanes) * kSize);
  }
}

/// Whether the stop word is set, so that the kernel must do nothing.
XYLEM_DEVICE bool is_stopped(const std::uint32_t* stop) {
  if (stop == nullptr) return false;
#ifdef __CUDA_ARCH__
  return *static_cast<const volatile std::uint32_t*>(stop) != 0;
#else
  return __atomic_load_n(stop, __ATOMIC_ACQUIRE) != 0;
#endif
}

template <class Element, class Op, class Target>
XYLEM_DEVICE void reduce_into(const Target& target,
                              const void* const* sources,
                              std::uint32_t source_count,
                              std::uint32_t divisor,
                              std::uint64_t count,
                              const Place& place) {
  // A bool has no average.
  if constexpr (std::is_same_v<Op, Sum> && !std::is_same_v<typename Element::Value, bool>) {
    using Divide = DivideBy<typename Element::Value>;
    const Fold<Element, Op, Divide, Target> fold{target, sources, source_count, {divisor}};
    for_each(fold, count, place);
  } else {
    for_each(Fold<Element, Op, Keep, Target>{target, sources, source_count, {}}, count, place);
  }
}

template <class Element, class Op>
XYLEM_DEVICE void reduce_n(const ReduceArguments& a, const Place& place) {
  if (is_stopped(a.stop)) return;
  reduce_into<Element, Op>(OneTarget{a.target}, a.sources, a.source_count, a.divisor, a.count,
                           place);
}

template <class Element>
XYLEM_DEVICE void scale(const ScaleArguments& a, const Place& place) {
  if (is_stopped(a.stop)) return;
  using Multiply = MultiplyBy<typename Element::Value>;
  const Multiply multiply{static_cast<typename Element::Value>(a.factor)};
  for_each(Fold<Element, Sum, Multiply>{{a.target}, &a.source, 1, multiply}, a.count, place);
}

}  // namespace xylem::execution::cuda
