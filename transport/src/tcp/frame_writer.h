// SPDX-License-Identifier: Apache-2.0
//
// FrameWriter: frames on their way into a socket. They are sealed in the order in which they will
// be sent, shortly before that: a few are kept ready, so that one call of the system takes several.
#pragma once

#include "tcp/frame.h"
#include "xylem/transport/seal.h"
#include "xylem/transport/tcp.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace xylem::transport::tcp {

struct Outgoing;

/// How a call of the system went.
enum class Io : std::uint8_t {
  more,     ///< There may be more to do.
  blocked,  ///< Not before the socket says so.
  ended,    ///< The peer has ended the connection.
  broken,   ///< It is no use any more.
};

class FrameWriter {
 public:
  /// How a body is held until it has been written.
  enum class Body : std::uint8_t {
    copied,    ///< Here: the caller may do with it what he likes.
    borrowed,  ///< Where it is, unless it is encrypted.
  };

  void start(TcpConnection& connection);

  bool has_room() const noexcept { return count_ < kSlots && bytes_ < kMostBytes; }
  bool is_empty() const noexcept { return count_ == 0; }
  /// With room. `owner`, if any, counts it among its frames until it has been written.
  void put(const FrameHead& head, const std::byte* body, Body how, Outgoing* owner);
  /// Takes copies of what is still borrowed of an owner, and forgets him.
  void disown(const Outgoing& owner);
  /// Forgets what has not been written.
  void clear() noexcept { first_ = count_ = 0, bytes_ = 0; }

  /// Writes what the socket takes, and calls `on_written(Outgoing&)` for each frame of an owner.
  template <typename OnWritten>
  Io write(int fd, const OnWritten& on_written) {
    const Io io = write_some(fd);
    while (count_ > 0 && front().written == front().size()) {
      Outgoing* const owner = front().owner;
      drop_front();
      if (owner != nullptr) on_written(*owner);
    }
    return io;
  }

 private:
  static constexpr std::uint32_t kSlots = 16;
  static constexpr std::uint64_t kMostBytes = 256 * 1024;

  struct Slot {
    std::array<std::byte, sizeof(FrameHead) + Seal::kTagBytes> head;
    std::array<std::byte, Seal::kTagBytes> tag;
    std::uint32_t head_bytes = 0, body_bytes = 0, tag_bytes = 0;
    std::uint32_t written = 0;
    const std::byte* body = nullptr;
    Outgoing* owner = nullptr;
    std::unique_ptr<std::byte[]> memory;  ///< Of copies; kept for the next frame.
    std::uint32_t capacity = 0;

    std::uint32_t size() const noexcept { return head_bytes + body_bytes + tag_bytes; }
    std::byte* room(std::uint32_t bytes);
  };

  Slot& front() noexcept { return slots_[first_]; }
  void drop_front() noexcept;
  Io write_some(int fd);

  Protection protection_ = Protection::off;
  std::optional<Seal> seal_;
  std::array<Slot, kSlots> slots_;
  std::uint32_t first_ = 0, count_ = 0;
  std::uint64_t bytes_ = 0;  ///< Of the bodies.
};

}  // namespace xylem::transport::tcp
