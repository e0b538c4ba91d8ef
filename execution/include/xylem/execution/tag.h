// SPDX-License-Identifier: Apache-2.0
//
// Message tags. Some fields distinguish the messages that are under way at the same time; these
// fields are exact. The rest of a tag is a fingerprint of the call. So a message of a call that
// disagrees matches a posted receive only by chance, with the probabilities that are stated below.
//
//   63  62 61      52 51          36 35      28 27      23 22       16 15            0
//   [kind ][ slot    ][ source rank ][ sequence ][ lane    ][ ordinal  ][ fingerprint ]
//      2       10           16            8           5          7             16
//
// slot: the number by which the receiver identifies the communicator. Each member of a communicator
// chooses a number that it uses for no other communicator. Members may choose different numbers.
//
// Transports that compare tags of more than 64 bits (shm, tcp) use 24 further bits of the
// fingerprint, above bit 63. With these transports, the fingerprints of two different calls are
// equal with probability 1 in 2^40; with other transports, 1 in 65,536.
//
// lane: the channel, and one bit for signals. ordinal: the position of the message among the
// messages of its (peer, lane), modulo 128. So messages 128 positions apart have equal tags. They
// match in the order in which they are sent, since receives are posted in this order, and
// transports keep the order of messages with equal tags. Point-to-point messages use sequence, lane
// and ordinal as one 20-bit number.
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

/// The bits of a tag for the kind and the communicator of the message.
inline constexpr transport::Tag kGroupMask = transport::Tag{0xfff} << 52;

constexpr transport::Tag group_tag(TagKind kind, std::uint32_t slot) noexcept {
  return (static_cast<transport::Tag>(kind) << 62) | (static_cast<transport::Tag>(slot) << 52);
}

constexpr std::uint16_t fold(std::uint64_t hash) noexcept {
  return static_cast<std::uint16_t>(hash ^ (hash >> 16) ^ (hash >> 32) ^ (hash >> 48));
}

/// The part of a tag that is the same in every call, for the message with the position `ordinal` in
/// a lane from the rank `source`. `group` is the group_tag() of collectives.
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

/// The tag of the body of a point-to-point message. `number` is its position among all messages
/// from `source` to its receiver.
constexpr transport::Tag body_tag(std::uint32_t slot,
                                  std::uint32_t source,
                                  std::uint64_t number,
                                  std::uint64_t fingerprint) noexcept {
  return group_tag(TagKind::message_body, slot) | (static_cast<transport::Tag>(source) << 36) |
         ((number & 0xfffff) << 16) | fold(fingerprint);
}

}  // namespace xylem::execution
