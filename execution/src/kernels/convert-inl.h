// SPDX-License-Identifier: Apache-2.0
//
// Converts floats of 16 and 8 bits to fp32 and back, with the same results on every target: rounds
// to nearest even, keeps subnormals, and turns every NaN into one quiet NaN. Overflow becomes
// infinity or, in E4M3, the greatest number. Highway 1.0.3's own conversions truncate (bfloat16
// everywhere, float16 without F16C) and may turn a NaN into an infinity.

// Included once per target by Highway's foreach_target, so the include guard toggles.
#if defined(XYLEM_KERNELS_CONVERT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef XYLEM_KERNELS_CONVERT_INL_H
#undef XYLEM_KERNELS_CONVERT_INL_H
#else
#define XYLEM_KERNELS_CONVERT_INL_H
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace xylem::execution {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Returns `v` with every NaN replaced by the positive quiet NaN without payload. Otherwise results
/// would differ: which of two NaNs an addition keeps depends on the order in which the compiler
/// passes the operands.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V with_one_nan(D d, V v) {
  const hn::RebindToUnsigned<D> du;
  using Bits = hn::TFromD<decltype(du)>;
  constexpr Bits kQuietNan =
      sizeof(Bits) == 4 ? static_cast<Bits>(0x7FC00000u) : static_cast<Bits>(0x7FF8000000000000u);
  return hn::IfThenElse(hn::IsNaN(v), hn::BitCast(d, hn::Set(du, kQuietNan)), v);
}

/// Rounds magnitudes, which are bits of fp32 without a sign, to a format with these numbers of
/// exponent and mantissa bits. Uses integer arithmetic on the bits. For subnormal results, which
/// would need a variable shift, it uses one fp32 addition instead, which is exact or rounds once.
template <int ExponentBits, int MantissaBits>
struct Rounding {
  static constexpr int kShift = 23 - MantissaBits;
  static constexpr std::int32_t kExponentGap =
      127 - ((1 << (ExponentBits - 1)) - 1);  ///< Difference of the exponent biases.
  static constexpr std::int32_t kSmallestNormal = (kExponentGap + 1) << 23;
  /// The power of two, as fp32 bits, next to which fp32 has the spacing of the format's subnormals.
  static constexpr std::int32_t kSameSpacing = (kExponentGap + 1 + kShift) << 23;

  /// Returns the magnitude in the bits of the format. If the result's exponent has too many bits,
  /// the magnitude is too large for the format.
  template <class DI, class V = hn::Vec<DI>>
  static HWY_INLINE V round(DI di, V magnitude) {
    const hn::RebindToFloat<DI> d;
    // Changes the bias of the exponent. Rounds by adding half a unit, less one, plus the last bit
    // that is kept. A carry goes into the exponent.
    const auto odd = hn::And(hn::ShiftRight<kShift>(magnitude), hn::Set(di, 1));
    const auto shift = hn::Set(di, (1 << (kShift - 1)) - 1 - (kExponentGap << 23));
    const auto normal = hn::ShiftRight<kShift>(hn::Add(hn::Add(magnitude, shift), odd));
    const auto large = hn::Set(di, kSameSpacing);
    const auto subnormal =
        hn::Sub(hn::BitCast(di, hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, large))), large);
    return hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, kSmallestNormal)), subnormal, normal);
  }
};

/// A bfloat16 is the upper half of the fp32 of the same value.
struct BFloat16 {
  /// True if widen_pair() and narrow_pair() can be used. They need vectors of more than one lane.
  static constexpr bool kInPairs = HWY_TARGET != HWY_SCALAR;

  template <class D>
  static HWY_INLINE hn::Vec<D> widen(D d, hn::Vec<hn::Rebind<std::uint16_t, D>> half) {
    const hn::RebindToUnsigned<D> du;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, half)));
  }

  template <class D>
  static HWY_INLINE hn::Vec<hn::Rebind<std::uint16_t, D>> narrow(D d, hn::Vec<D> v) {
    return hn::TruncateTo(hn::Rebind<std::uint16_t, D>(), hn::ShiftRight<16>(rounded(d, v)));
  }

  /// Widens two values that share 32 bits: sets `lower` to the value of the lower half, and `upper`
  /// to the value of the upper half. Nothing moves between lanes.
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE void widen_pair(D d,
                                    hn::Vec<hn::RebindToUnsigned<D>> both,
                                    V& lower,
                                    V& upper) {
    const hn::RebindToUnsigned<D> du;
    lower = hn::BitCast(d, hn::ShiftLeft<16>(both));
    upper = hn::BitCast(d, hn::And(both, hn::Set(du, kUpper)));
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> narrow_pair(D d, V lower, V upper) {
    const hn::RebindToUnsigned<D> du;
    return hn::Or(hn::ShiftRight<16>(rounded(d, lower)),
                  hn::And(rounded(d, upper), hn::Set(du, kUpper)));
  }

 private:
  static constexpr std::uint32_t kUpper = 0xFFFF0000u;

  /// Returns fp32 bits whose upper half is the rounded bfloat16.
  template <class D>
  static HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> rounded(D d, hn::Vec<D> v) {
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::BitCast(du, with_one_nan(d, v));
    // Adds half a unit, less one, plus the last bit that is kept, so that a tie is rounded up only
    // from an odd value. The lower bits of the quiet NaN are zero, so no carry reaches its
    // exponent.
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    return hn::Add(hn::Add(bits, hn::Set(du, 0x7FFFu)), odd);
  }
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)

/// F16C's instructions round to nearest even whatever MXCSR says and keep subnormals.
struct Float16 {
  static constexpr bool kInPairs = false;
  template <class D>
  static HWY_INLINE hn::Vec<D> widen(D d, hn::Vec<hn::Rebind<std::uint16_t, D>> half) {
    return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), half));
  }

  template <class D>
  static HWY_INLINE hn::Vec<hn::Rebind<std::uint16_t, D>> narrow(D d, hn::Vec<D> v) {
    const hn::Rebind<hwy::float16_t, D> d16;
    return hn::BitCast(hn::RebindToUnsigned<decltype(d16)>(),
                       hn::DemoteTo(d16, with_one_nan(d, v)));
  }
};

#else

/// Uses integer arithmetic on the bits. For subnormal halves it uses one fp32 subtraction, which is
/// exact.
struct Float16 {
  static constexpr bool kInPairs = false;
  static constexpr std::uint32_t kExponentGap = 127 - 15;  ///< Between the biases of fp32 and fp16.
  static constexpr std::uint32_t kSmallestNormal = (kExponentGap + 1)
                                                   << 23;      ///< 2^-14 as fp32 bits.
  static constexpr std::int32_t kTooLarge = (127 + 16) << 23;  ///< 2^16 as fp32 bits.

  template <class D>
  static HWY_INLINE hn::Vec<D> widen(D d, hn::Vec<hn::Rebind<std::uint16_t, D>> half) {
    const hn::RebindToUnsigned<D> du;
    const auto h = hn::PromoteTo(du, half);
    const auto sign = hn::ShiftLeft<16>(hn::And(h, hn::Set(du, 0x8000u)));
    const auto magnitude = hn::ShiftLeft<13>(hn::And(h, hn::Set(du, 0x7FFFu)));
    const auto exponent = hn::And(magnitude, hn::Set(du, 0x7C00u << 13));
    const auto rebased = hn::Add(magnitude, hn::Set(du, kExponentGap << 23));

    // Exponent 0: puts an implicit one at 2^-14 before the mantissa, then subtracts that one.
    const auto one = hn::Set(du, kSmallestNormal);
    const auto subnormal = hn::BitCast(
        du, hn::Sub(hn::BitCast(d, hn::Add(rebased, hn::Set(du, 1u << 23))), hn::BitCast(d, one)));
    // Exponent 31 (infinity and NaN) becomes fp32's exponent 255.
    const auto special = hn::Add(rebased, hn::Set(du, kExponentGap << 23));

    auto bits = hn::IfThenElse(hn::Eq(exponent, hn::Zero(du)), subnormal, rebased);
    bits = hn::IfThenElse(hn::Eq(exponent, hn::Set(du, 0x7C00u << 13)), special, bits);
    return hn::BitCast(d, hn::Or(bits, sign));
  }

  template <class D>
  static HWY_INLINE hn::Vec<hn::Rebind<std::uint16_t, D>> narrow(D d, hn::Vec<D> v) {
    const hn::RebindToSigned<D> di;  // signed comparison is right for magnitudes and cheaper on SSE
    const auto all = hn::BitCast(di, with_one_nan(d, v));
    const auto magnitude = hn::And(all, hn::Set(di, 0x7FFFFFFF));
    const auto sign = hn::Xor(all, magnitude);
    const auto rounded = Rounding<5, 10>::round(di, magnitude);
    const auto special = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, 255 << 23)),
                                        hn::Set(di, 0x7E00), hn::Set(di, 0x7C00));
    const auto bits = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, kTooLarge)), rounded, special);
    const hn::RebindToUnsigned<D> du;
    const auto result = hn::Or(hn::BitCast(du, bits), hn::ShiftRight<16>(hn::BitCast(du, sign)));
    return hn::TruncateTo(hn::Rebind<std::uint16_t, D>(), result);
  }
};

#endif

/// E5M2 is the upper byte of an fp16. A value that is too large becomes an infinity.
struct Float8E5M2 {
  using Rounds = Rounding<5, 2>;
  static constexpr std::int32_t kGreatest = (127 + 16) << 23;  ///< 2^16, which rounds to infinity.

  /// The factor by which results of half() must be multiplied.
  static constexpr float kScale = 1.0f;

  /// Turns each element into an fp16 of its value divided by kScale. `upper` has an element in the
  /// upper byte of each lane, and zero in the lower byte.
  template <class D16, class V = hn::Vec<D16>>
  static HWY_INLINE V half(D16, V upper) {
    return upper;
  }
};

/// E4M3 has no infinity. Its NaN has all bits set, with either sign. A value that is too large
/// becomes ±448.
struct Float8E4M3 {
  using Rounds = Rounding<4, 3>;
  static constexpr std::int32_t kGreatest = 0x43E00000;  ///< 448 as fp32 bits.

  static constexpr float kScale = 256.0f;  ///< 2 to the power of the difference of the biases.

  /// As in Float8E5M2. After a right shift by one bit, exponent and mantissa are those of the fp16.
  /// This also holds for subnormals.
  template <class D16, class V = hn::Vec<D16>>
  static HWY_INLINE V half(D16 d16, V upper) {
    const hn::RebindToSigned<D16> di16;
    const auto shifted = hn::BitCast(d16, hn::ShiftRight<1>(hn::BitCast(di16, upper)));
    const auto all_ones = hn::Set(d16, std::uint16_t{0x7F00});
    return hn::IfThenElse(hn::Eq(hn::And(upper, all_ones), all_ones),
                          hn::Set(d16, std::uint16_t{0x7E00}),
                          hn::And(shifted, hn::Set(d16, std::uint16_t{0xBF80})));
  }
};

/// Widens results of half() to fp32.
template <class Format, class D>
HWY_INLINE hn::Vec<D> widen_half(D d, hn::Vec<hn::Rebind<std::uint16_t, D>> half) {
  const auto wide = Float16::widen(d, half);
  if constexpr (Format::kScale == 1.0f) return wide;
  else return hn::Mul(wide, hn::Set(d, Format::kScale));
}

/// Narrows to Float8E5M2 or Float8E4M3; the result is the lowest byte of each lane.
template <class Format, class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> narrow_to_byte(D, hn::Vec<D> v) {
  const hn::RebindToSigned<D> di;
  const hn::RebindToUnsigned<D> du;
  const auto all = hn::BitCast(di, v);
  const auto magnitude = hn::And(all, hn::Set(di, 0x7FFFFFFF));
  const auto sign = hn::And(hn::ShiftRight<24>(hn::BitCast(du, all)), hn::Set(du, 0x80u));
  const auto bits = Format::Rounds::round(di, hn::Min(magnitude, hn::Set(di, Format::kGreatest)));
  const auto is_nan = hn::RebindMask(du, hn::Gt(magnitude, hn::Set(di, 255 << 23)));
  return hn::IfThenElse(is_nan, hn::Set(du, 0x7Fu), hn::Or(hn::BitCast(du, bits), sign));
}

}  // namespace HWY_NAMESPACE
}  // namespace xylem::execution
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
