// SPDX-License-Identifier: Apache-2.0
//
// Frames of the tcp transport. On the wire:
//
//   head 40 bytes | its tag 16 | body | its tag 16        both tags but with Protection::off,
//                                                         the second only where there is a body
//
// What the ends of one direction say to each other, by message number:
//
//   sender                                  receiver
//   eager (the first bytes) ──► data …      keeps it, or puts it where it is wanted
//   announce ──►            ◄── go          now it has a place
//            ──► data …
//            ──► withdraw                   no more of it will come
//                           ◄── drop        no more of it is wanted: the sender stops, by withdraw
//                           ◄── credit      the sender may send so many bytes more unasked
#pragma once

#include "matcher.h"
#include "xylem/transport/transport.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace xylem::transport::tcp {

enum class FrameKind : std::uint8_t { eager = 1, announce, data, go, drop, withdraw, credit };

/// Bytes as they are in memory: jobs do not mix architectures.
struct FrameHead {
  FrameKind kind = FrameKind::credit;
  std::array<std::uint8_t, 3> check{};  ///< With `name`.
  std::uint32_t body = 0;               ///< Bytes that follow.
  std::uint64_t id = 0;                 ///< Of the message; each direction counts its own.
  std::uint64_t credit = 0;             ///< With any kind: so many bytes more.
  std::uint64_t name = 0;               ///< eager, announce: the lower bits of the tag.
  std::uint64_t bytes = 0;              ///< The same: of the whole message.

  void set_tag(Tag tag) noexcept {
    name = static_cast<std::uint64_t>(tag);
    const auto upper = static_cast<std::uint32_t>(tag >> kNameBits);
    std::memcpy(check.data(), &upper, check.size());
  }
  Tag tag() const noexcept {
    std::uint32_t upper = 0;
    std::memcpy(&upper, check.data(), check.size());
    return (static_cast<Tag>(upper) << kNameBits) | name;
  }
};
static_assert(sizeof(FrameHead) == 40 && std::is_trivially_copyable_v<FrameHead>);

/// Large enough that sealing is quick, and small enough that a body is still in the cache when it
/// is verified.
inline constexpr std::uint32_t kLargestBody = 32 * 1024;
/// A message of more is announced even where there is credit for it: it is worth the handshake.
inline constexpr std::uint64_t kLargestEager = 256 * 1024;

/// What a message of so many bytes takes of the credit.
constexpr std::uint64_t weight_of(std::uint64_t bytes) noexcept { return bytes + kNodeBytes; }

}  // namespace xylem::transport::tcp
