// SPDX-License-Identifier: Apache-2.0
//
// Structs that begin with their size. A caller compiled with an older header has fewer fields, and
// one with a newer header more. Fields that the caller lacks count as zero. A call is refused if it
// sets a field that the library does not know.
#pragma once

#include "xylem/base/status.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace xylem::c {

/// The size that a caller's struct declares. An implausible value, as in a struct_size that was
/// never set, is refused before anything else is read.
inline Result<std::size_t> given_size(std::string_view type, const void* given) {
  constexpr std::size_t kLargest = 4096;
  std::size_t size = 0;
  std::memcpy(&size, given, sizeof size);
  if (size >= sizeof size && size <= kLargest) return size;
  return failure(Code::invalid_argument, std::string(type) + "::struct_size is " +
                                             std::to_string(size) + "; set it to sizeof(" +
                                             std::string(type) + ")");
}

/// A copy of the caller's struct, with the fields that this library knows.
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

/// Fills the fields that a caller's struct has, and keeps its struct_size.
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
