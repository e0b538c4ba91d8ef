// SPDX-License-Identifier: Apache-2.0
//
// Hashes of 64-bit words, for fingerprints. They are not cryptographic: for secrets, Xylem uses the
// keyed hashes of libsodium.
#pragma once

#include <cstdint>
#include <string_view>

namespace xylem {

/// Finalizer of splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
/// 2014).
constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// Combines the hash `seed` of earlier values with the next `value`. The order of the values
/// matters.
constexpr std::uint64_t combine(std::uint64_t seed, std::uint64_t value) noexcept {
  return mix(seed + 0x9e3779b97f4a7c15ULL + mix(value));
}

constexpr std::uint64_t hash_text(std::string_view text, std::uint64_t seed = 0) noexcept {
  for (const char c : text) seed = combine(seed, static_cast<unsigned char>(c));
  return combine(seed, text.size());
}

}  // namespace xylem
