// SPDX-License-Identifier: Apache-2.0
//
// FrameWriter: queues frames and writes them to a socket. Frames are sealed in the order in which
// they will be sent, shortly before they are sent. A few sealed frames are kept ready, so that one
// system call writes several frames.
#pragma once

#include "tcp/frame.h"
#include "xylem/transport/connections.h"
#include "xylem/transport/seal.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace xylem::transport::tcp {

struct Outgoing;

/// The result of a system call on a socket.
enum class Io : std::uint8_t {
  more,     ///< Repeat the call: it may transfer more bytes at once.
  blocked,  ///< Repeat the call when epoll reports the socket ready.
  ended,    ///< The peer has closed the connection.
  broken,   ///< The connection is unusable.
};

class FrameWriter {
 public:
  /// Where a body is stored until it has been written.
  enum class Body : std::uint8_t {
    copied,    ///< In a copy: the caller may reuse its memory at once.
    borrowed,  ///< In the caller's memory; encrypted bodies are copied nevertheless.
  };

  void start(Connection& connection);

  bool has_room() const noexcept { return count_ < kSlots && bytes_ < kMostBytes; }
  bool is_empty() const noexcept { return count_ == 0; }
  /// Adds a frame; requires has_room(). `owner` is the message of the frame, or null; write()
  /// passes it to `on_written` once the frame has been written.
  void put(const FrameHead& head, const std::byte* body, Body how, Outgoing* owner);
  /// Copies the bodies that are borrowed from the memory of `owner`. Afterwards `on_written` is not
  /// called for `owner`.
  void disown(const Outgoing& owner);
  /// Drops all frames that have not been written.
  void clear() noexcept { first_ = count_ = 0, bytes_ = 0; }

  /// Writes as much as the socket accepts, and calls `on_written(Outgoing&)` for each complete
  /// frame that has an owner.
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
    std::unique_ptr<std::byte[]> memory;  ///< Holds copied and encrypted bodies; kept for reuse.
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
  std::uint64_t bytes_ = 0;  ///< Total size of the bodies.
};

}  // namespace xylem::transport::tcp
