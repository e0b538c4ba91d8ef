// SPDX-License-Identifier: Apache-2.0
//
// Frames of the tcp transport. A frame on the socket consists of:
//
//   head, 40 bytes | tag of the head, 16 | body | tag of the body, 16
//
// The tags here are authentication tags (seal.h). With Protection::off, no tag is sent; without a
// body, no tag of the body is sent.
//
// The kinds of frames, for messages in one direction. `id` identifies the message.
//
//   sender                                  receiver
//   eager, the first bytes ──► data …       keeps the bytes, or writes them to the posted receive
//   announce ──►            ◄── go          a receive has been posted
//            ──► data …
//            ──► withdraw                   the rest of the message will not be sent
//                           ◄── drop        the rest is unwanted; the sender sends withdraw
//                           ◄── credit      the sender may send more bytes ahead of receives
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

/// Fields are in the byte order of the host: jobs do not mix architectures.
struct FrameHead {
  FrameKind kind = FrameKind::credit;
  std::array<std::uint8_t, 3> check{};  ///< Bits 64 to 87 of the message's tag.
  std::uint32_t body = 0;               ///< Number of body bytes that follow.
  std::uint64_t id = 0;      ///< Number of the message. Each direction counts its own messages.
  std::uint64_t credit = 0;  ///< In every kind of frame: bytes of credit that it grants.
  std::uint64_t name = 0;    ///< In eager and announce: the lower 64 bits of the tag.
  std::uint64_t bytes = 0;   ///< In eager and announce: the size of the whole message.

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

/// Large enough for fast sealing, and small enough that a body is still in the cache when its tag
/// is checked.
inline constexpr std::uint32_t kLargestBody = 32 * 1024;
/// Longer messages are always announced, even if there is credit: compared with their transfer, the
/// additional round trip is short.
inline constexpr std::uint64_t kLargestEager = 256 * 1024;

/// The credit that a message of this size uses.
constexpr std::uint64_t weight_of(std::uint64_t bytes) noexcept { return bytes + kNodeBytes; }

}  // namespace xylem::transport::tcp
