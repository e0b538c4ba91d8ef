// SPDX-License-Identifier: Apache-2.0
//
// Message tags. The fields that distinguish messages under way at the same time are exact. The rest
// is a fingerprint of the call, so that a message of a disagreeing call matches a posted receive
// only by chance, as rarely as stated below.
//
//   63  62 61      52 51          36 35      28 27      23 22       16 15            0
//   [kind ][ slot    ][ source rank ][ sequence ][ lane    ][ ordinal  ][ fingerprint ]
//      2       10           16            8           5          7             16
//
// slot: the number of the communicator at the receiver. Each member of a communicator has chosen a
// number that it uses for no other communicator, so members need not agree on one.
//
// Transports that compare more bits (shm, tcp) have 24 more bits of the fingerprint above these.
// There, two different calls match once in 2^40, elsewhere once in 65,536.
//
// lane: the channel, and one bit for signals. ordinal: the position of the message in its (peer,
// lane) order, modulo 128. Messages 128 positions apart match in the order sent, since receives are
// posted in that order and transports keep it among equal tags. Point-to-point messages use
// sequence, lane and ordinal as one 20-bit number.
#pragma once

#include "xylem/base/hash.h"
#include "xylem/transport/transport.h"

#include <cstdint>

namespace xylem::execution {

enum class TagKind : std::uint8_t {
  collective = 0,
  message_header = 1,
  message_body = 2,
  companion = 3,  ///< Collectives of the communicator's companion (Communicator::companion()).
};

inline constexpr std::uint32_t kMaxGroups = 1024;
inline constexpr std::uint32_t kMaxRanks = 65536;
/// The largest number of slices of one step that are under way at once, even if XYLEM_WINDOW allows
/// more in a lane. StepState::ahead has one bit for each.
inline constexpr std::uint32_t kMaxWindow = 64;
/// The largest number of operations of one communicator that are under way at once; later
/// operations wait. It is well below the 256 operations that `sequence` distinguishes.
inline constexpr std::uint32_t kMaxOperations = 64;

/// The bits for the kind and the communicator of a message.
inline constexpr transport::Tag kGroupMask = transport::Tag{0xfff} << 52;

constexpr transport::Tag group_tag(TagKind kind, std::uint32_t slot) noexcept {
  return (static_cast<transport::Tag>(kind) << 62) | (static_cast<transport::Tag>(slot) << 52);
}

constexpr std::uint16_t fold(std::uint64_t hash) noexcept {
  return static_cast<std::uint16_t>(hash ^ (hash >> 16) ^ (hash >> 32) ^ (hash >> 48));
}

/// The part of the tag that the `ordinal`-th message on a lane from `source` has in every call.
/// `group` is the group_tag() of collectives.
constexpr transport::Tag message_tag(transport::Tag group,
                                     std::uint32_t source,
                                     std::uint32_t lane,
                                     std::uint32_t ordinal) noexcept {
  return group | (static_cast<transport::Tag>(source) << 36) |
         (static_cast<transport::Tag>(lane) << 23) |
         (static_cast<transport::Tag>(ordinal & 0x7f) << 16);
}

/// The complete tag of a message in the call with this sequence number and fingerprint. `message`
/// is the message_tag() of the message. `bytes` is the size of the whole step, so that two ends
/// which disagree on the size never match.
constexpr transport::Tag collective_tag(transport::Tag message,
                                        std::uint64_t sequence,
                                        std::uint64_t fingerprint,
                                        std::uint64_t bytes) noexcept {
  const std::uint64_t whole = combine(fingerprint, bytes);
  const std::uint64_t check = mix(whole) >> (64 - transport::kCheckBits);
  return message | ((sequence & 0xff) << 28) | fold(whole) |
         (static_cast<transport::Tag>(check) << transport::kNameBits);
}

/// The tag of the body of the `number`-th message from `source` to its receiver.
constexpr transport::Tag body_tag(std::uint32_t slot,
                                  std::uint32_t source,
                                  std::uint64_t number,
                                  std::uint64_t fingerprint) noexcept {
  return group_tag(TagKind::message_body, slot) | (static_cast<transport::Tag>(source) << 36) |
         ((number & 0xfffff) << 16) | fold(fingerprint);
}

}  // namespace xylem::execution
