// SPDX-License-Identifier: Apache-2.0
//
// Control frames: what ranks send over a control connection after the handshake. Their length is
// bounded.
//
//   u32 body bytes | u8 kind | body
#pragma once

#include "bootstrap/control_plane.h"
#include "bootstrap/wire_format.h"
#include "xylem/base/status.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace xylem::runtime {

/// A message to one rank or to all. The flooded messages of an origin are numbered, so that a rank
/// recognises copies that arrive over several connections. A message that is not flooded is
/// forwarded to the neighbour that is nearest to its addressee.
struct MessageFrame {
  static constexpr std::uint32_t kEverybody = ~std::uint32_t{0};

  std::uint32_t origin = 0;
  std::uint32_t to = kEverybody;
  std::uint32_t number = 0;  ///< From 1; 0 if the message is not flooded.
  std::uint64_t topic = 0;   ///< ControlPlane::flood()
  ByteSpan bytes;
};
/// Rank `rank` was lost: it ended, but did not leave in good order. Flooded once for each lost
/// rank.
struct LostFrame {
  std::uint32_t rank = 0;
  std::string_view how;
};
/// Rank `rank` left in good order. Flooded once for each such rank.
struct LeftFrame {
  std::uint32_t rank = 0;
};
/// The start failed at some rank, and therefore fails at all ranks. Flooded once.
struct FailedFrame {
  Code code = Code::internal;
  std::optional<std::uint32_t> peer;
  std::string_view message;
};
/// A piece of the data that a rank sends in one round of a gather (bruck_gather.h).
struct GatherFrame {
  static constexpr std::size_t kLargestPiece = std::size_t{32} * 1024;

  std::uint32_t gather = 0;  ///< Number of the gather, from 0.
  std::uint8_t round = 0;
  bool is_last = true;
  ByteSpan bytes;
};

/// An invitation: rank `inviter` listens at an address for a payload connection from rank
/// `invitee`. Each rank forwards the frame to the neighbour that is nearest to the invitee, or
/// floods it.
struct Invitation {
  std::uint32_t inviter = 0;
  std::uint32_t invitee = 0;
  std::uint32_t number = 0;  ///< Number of this invitation among those of `inviter`, from 1.
  bool is_flooded = false;   ///< True if the frame is flooded.
  std::string address;       ///< Numeric, as from SocketAddress::host().
  std::uint16_t port = 0;
};

/// The spans and views in a frame do not own their bytes. After reading, they refer to the
/// FrameReader's buffer.
using ControlFrame =
    std::variant<MessageFrame, LostFrame, LeftFrame, FailedFrame, GatherFrame, Invitation>;

/// Appends a frame to `out`. Texts that are too long for a frame are truncated.
void write_frame(ByteVector& out, const ControlFrame& frame);

/// Splits a byte stream into frames.
class FrameReader {
 public:
  static constexpr std::size_t kHeaderBytes = 5;
  static constexpr std::size_t kLargestBody = ControlPlane::kMaxMessage + 64;

  void append(ByteSpan bytes);
  /// The next frame, valid until the next call of append(); nothing if the frame has not arrived in
  /// full. Fails if the bytes are not a frame; all later calls then fail, too.
  Result<std::optional<ControlFrame>> next();

 private:
  ByteVector buffer_;
  std::size_t at_ = 0;
};

}  // namespace xylem::runtime
