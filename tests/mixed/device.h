// SPDX-License-Identifier: Apache-2.0
//
// A device for the buffers of mixed programs, and its streams.
#pragma once

#include "xylem/xylem.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace xylem::test::mixed {

/// Memory for one buffer. `memory` is the address that is passed to calls; at `seen`, the test
/// reads and writes the bytes. These may be two memories, between which Device::write and
/// Device::read copy.
struct Room {
  std::shared_ptr<std::byte> memory, seen;
  std::uint64_t bytes = 0;
};

/// The device of one rank. Only one thread may use it.
class Device {
 public:
  enum class Kind : std::uint8_t {
    shared,  ///< A part of a larger allocation. It is reused at once.
    own,     ///< A separate allocation, which renew() frees.
    pinned,  ///< Host memory that the device can access.
  };

  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  virtual Memory memory() const noexcept = 0;
  /// True if calls can be ordered by streams, and streams copy between the two addresses of a Room.
  virtual bool has_streams() const noexcept { return false; }
  virtual std::uint32_t streams() const noexcept { return 1; }
  virtual Stream stream(std::uint32_t /*number*/) const noexcept { return {nullptr, memory()}; }

  /// Allocates memory that `stream` may use at once. `last` is the last stream that uses it: when
  /// Room::memory is released, work enqueued on `last` may reuse the memory.
  virtual Room take(std::uint64_t bytes, Kind kind, std::uint32_t stream, std::uint32_t last) = 0;
  /// Enqueues a copy on `stream`: write() from Room::seen to Room::memory, read() back. Neither
  /// waits for the copy.
  virtual void write(const Room& /*room*/, std::uint32_t /*stream*/) {}
  virtual void read(const Room& /*room*/, std::uint32_t /*stream*/) {}
  /// Waits until a stream has finished all its work. Returns false if `limit` passes first.
  virtual bool synchronize(std::uint32_t /*stream*/, std::chrono::seconds /*limit*/) {
    return true;
  }

  /// Frees all memory, so that other allocations reuse its addresses. All Rooms must have been
  /// released.
  virtual void renew() {}
  /// Describes incorrect use of the driver by this process, or is empty.
  virtual std::string misuse() const { return {}; }
};

}  // namespace xylem::test::mixed
