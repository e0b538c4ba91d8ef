// SPDX-License-Identifier: Apache-2.0
//
// Reads and writes the caller's structs that begin with their size. The header that the caller was
// compiled with may be older than the library: then the struct lacks some fields, which count as
// zero. The header may be newer: then the struct has fields that the library does not know, and the
// call fails if one of these is not zero.
#pragma once

#include "xylem/base/status.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace xylem::c {

/// Returns the struct_size that the caller has set. Fails if the value is implausible, for example
/// because it was never set. Nothing else of the struct is read.
inline Result<std::size_t> given_size(std::string_view type, const void* given) {
  constexpr std::size_t kLargest = 4096;
  std::size_t size = 0;
  std::memcpy(&size, given, sizeof size);
  if (size >= sizeof size && size <= kLargest) return size;
  return failure(Code::invalid_argument, std::string(type) + "::struct_size is " +
                                             std::to_string(size) + "; set it to sizeof(" +
                                             std::string(type) + ")");
}

/// Copies the fields that this library knows from the caller's struct.
template <typename Struct>
Result<Struct> read_sized(std::string_view type, const Struct* given) {
  static_assert(std::is_trivially_copyable_v<Struct> && offsetof(Struct, struct_size) == 0);
  XYLEM_TRY(const std::size_t size, given_size(type, given));
  const auto* bytes = reinterpret_cast<const std::byte*>(given);
  if (size > sizeof(Struct) && std::any_of(bytes + sizeof(Struct), bytes + size,
                                           [](std::byte byte) { return byte != std::byte{0}; })) {
    return failure(Code::unsupported,
                   "a field of " + std::string(type) +
                       " is set that this version of the library does not know; leave it zero, or "
                       "install the version that the program was compiled with");
  }
  Struct known{};
  std::memcpy(&known, bytes, std::min(size, sizeof(Struct)));
  return known;
}

/// Writes `known` to the caller's struct, as far as its struct_size reaches. Fields that this
/// library does not know become zero. Does not change struct_size.
template <typename Struct>
Status write_sized(std::string_view type, Struct known, Struct* target) {
  static_assert(std::is_trivially_copyable_v<Struct> && offsetof(Struct, struct_size) == 0);
  XYLEM_TRY(const std::size_t size, given_size(type, target));
  known.struct_size = size;
  auto* bytes = reinterpret_cast<std::byte*>(target);
  std::memcpy(bytes, &known, std::min(size, sizeof(Struct)));
  if (size > sizeof(Struct)) std::fill(bytes + sizeof(Struct), bytes + size, std::byte{0});
  return {};
}

}  // namespace xylem::c
