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

/// A flooded message. The messages of an origin are numbered, so that copies are recognised.
struct MessageFrame {
  std::uint32_t origin = 0;
  std::uint32_t number = 0;
  ByteSpan bytes;
};
/// A rank was lost: it did not leave in good order. This is flooded once for each such rank.
struct LostFrame {
  std::uint32_t rank = 0;
  std::string_view how;
};
/// A rank left in good order. This is flooded once for each such rank.
struct LeftFrame {
  std::uint32_t rank = 0;
};
/// The start failed at some rank, and therefore fails at all ranks. This is flooded once.
struct FailedFrame {
  Code code = Code::internal;
  std::optional<std::uint32_t> peer;
  std::string_view message;
};
/// A piece of one round of a gather.
struct GatherFrame {
  static constexpr std::size_t kLargestPiece = std::size_t{32} * 1024;

  std::uint32_t gather = 0;  ///< Number of the gather, from 0.
  std::uint8_t round = 0;
  bool is_last = true;
  ByteSpan bytes;
};

/// An invitation: rank `inviter` listens at an address for rank `invitee`. The frame is forwarded
/// towards the guest, or flooded.
struct Invitation {
  std::uint32_t inviter = 0;
  std::uint32_t invitee = 0;
  std::uint32_t number = 0;  ///< Counts the invitations of the host, from 1.
  bool is_flooded = false;   ///< True if it is flooded.
  std::string address;       ///< Numeric, as from SocketAddress::host().
  std::uint16_t port = 0;
};

/// Spans and views refer to the buffer that was read, or to the data that is to be written.
using ControlFrame =
    std::variant<MessageFrame, LostFrame, LeftFrame, FailedFrame, GatherFrame, Invitation>;

/// Appends a frame to `out`. Texts are cut to a length that fits.
void write_frame(ByteVector& out, const ControlFrame& frame);

/// Splits a stream into frames.
class FrameReader {
 public:
  static constexpr std::size_t kHeaderBytes = 5;
  static constexpr std::size_t kLargestBody = ControlPlane::kMaxMessage + 64;

  void append(ByteSpan bytes);
  /// The next frame, valid until the next call of append(); nothing if it has not arrived in full.
  /// Fails if the bytes are not a frame; all later calls then fail, too.
  Result<std::optional<ControlFrame>> next();

 private:
  ByteVector buffer_;
  std::size_t at_ = 0;
};

}  // namespace xylem::runtime
