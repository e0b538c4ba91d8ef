// SPDX-License-Identifier: Apache-2.0
//
// FrameReader: splits the bytes from a socket into frames, opens their seals, and receives bodies
// directly into their destination.
//
//   head ── opened, no body ───────────────────────────────────────────► on_frame ──► head
//     └──── opened; on_head sets `body` ──► body ──► tag ── opened ─────► on_frame ──► head
#pragma once

#include "tcp/frame_writer.h"
#include "xylem/transport/connections.h"
#include "xylem/transport/seal.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace xylem::transport::tcp {

/// Processes the frames that a FrameReader has read. Its functions may call
/// FrameReader::redirect(), but no other function of the reader.
class FrameListener {
 public:
  /// Called when a head has arrived and its seal is valid. Sets `body` to the destination of the
  /// body, if the frame has a body and the body is wanted. False if the peer violates the protocol,
  /// or if there is no memory for the message.
  virtual bool on_head(const FrameHead& head, std::byte*& body) = 0;
  /// Called when the whole frame has arrived and its seals are valid. False in the same cases as
  /// on_head().
  virtual bool on_frame(const FrameHead& head) = 0;

 protected:
  ~FrameListener() = default;
};

class FrameReader {
 public:
  void start(Connection& connection);

  /// Reads the bytes that have arrived, up to a limit. Adds the number of complete frames to
  /// `frames`.
  Io read(int fd, FrameListener& listener, unsigned& frames);
  /// Changes the destination of the current body to a buffer of the reader, and copies the part
  /// that was read already to this buffer. Afterwards nothing is written to the destination that
  /// on_head() chose.
  void redirect();

 private:
  enum class Part : std::uint8_t { head, body, tag };
  enum class Taken : std::uint8_t { whole, part, invalid };
  static constexpr std::size_t kStaged = 16 * 1024;

  std::size_t staged() const noexcept { return end_ - begin_; }
  std::size_t head_bytes() const noexcept {
    return sizeof(FrameHead) + (seal_ ? Seal::kTagBytes : 0);
  }
  ssize_t receive(int fd, std::size_t& wanted);
  bool take_head(FrameListener& listener);
  bool take_tag();
  void take_body();
  Taken take_frame(FrameListener& listener);
  /// Processes the frames that have arrived; false if one of them is invalid.
  bool take_frames(FrameListener& listener, unsigned& frames);

  Protection protection_ = Protection::off;
  std::optional<Seal> seal_;
  Part part_ = Part::head;
  FrameHead head_;
  std::byte* body_ = nullptr;
  std::uint32_t got_ = 0;                   ///< Number of body bytes received so far.
  std::unique_ptr<std::byte[]> elsewhere_;  ///< The destination of a body after redirect().
  std::unique_ptr<std::byte[]> memory_;
  std::size_t begin_ = 0, end_ = 0;  ///< The range of unprocessed bytes in `memory_`.
};

}  // namespace xylem::transport::tcp
