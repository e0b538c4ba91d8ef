// SPDX-License-Identifier: Apache-2.0
//
// FrameReader: cuts what comes from a socket into frames, opens their seals, and reads bodies
// straight to where they belong.
//
//   head ──opened, no body──────────────────────────► on_frame ──► head
//     └────opened: on_head says where the body goes──► body ──► tag ──opened──► on_frame ──► head
#pragma once

#include "tcp/frame_writer.h"
#include "xylem/transport/seal.h"
#include "xylem/transport/tcp.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace xylem::transport::tcp {

/// Who hears the frames. May call redirect(), else nothing of the reader.
class FrameListener {
 public:
  /// The head is the peer's. Sets where the body goes, if there is one; false where no peer that
  /// keeps to the protocol says this, or there is no memory for it.
  virtual bool on_head(const FrameHead& head, std::byte*& body) = 0;
  /// All of it is here, and the peer's. False as above.
  virtual bool on_frame(const FrameHead& head) = 0;

 protected:
  ~FrameListener() = default;
};

class FrameReader {
 public:
  void start(TcpConnection& connection);

  /// Reads once, as much as is here but not without end. `frames` grows by those heard.
  Io read(int fd, FrameListener& listener, unsigned& frames);
  /// The rest of the body that is being read goes elsewhere, and so does what has been read of it:
  /// nothing more is written to where on_head() said.
  void redirect();

 private:
  enum class Part : std::uint8_t { head, body, tag };
  enum class Taken : std::uint8_t { whole, part, nonsense };
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
  /// Takes as many frames as are here; false if one is none.
  bool take_frames(FrameListener& listener, unsigned& frames);

  Protection protection_ = Protection::off;
  std::optional<Seal> seal_;
  Part part_ = Part::head;
  FrameHead head_;
  std::byte* body_ = nullptr;
  std::uint32_t got_ = 0;                   ///< Of the body.
  std::unique_ptr<std::byte[]> elsewhere_;  ///< Where redirect() leads; touched only then.
  std::unique_ptr<std::byte[]> memory_;
  std::size_t begin_ = 0, end_ = 0;  ///< Of what is in `memory_`.
};

}  // namespace xylem::transport::tcp
