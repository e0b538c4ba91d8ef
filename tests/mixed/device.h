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

/// Memory for one buffer: its address, which is passed to calls, and the address at which the test
/// writes and sees the bytes. These may be other bytes, which streams copy (Device::write, read).
struct Room {
  std::shared_ptr<std::byte> memory, seen;
  std::uint64_t bytes = 0;
};

/// The device of one rank. For one thread.
class Device {
 public:
  enum class Kind : std::uint8_t {
    shared,  ///< A part of a larger allocation, which is used again at once.
    own,     ///< An allocation of its own, which renew() frees.
    pinned,  ///< Memory of the host that the device reaches.
  };

  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  virtual Memory memory() const noexcept = 0;
  /// True if streams copy between the two addresses of a Room, and have an order that counts.
  virtual bool has_streams() const noexcept { return false; }
  virtual std::uint32_t streams() const noexcept { return 1; }
  virtual Stream stream(std::uint32_t /*number*/) const noexcept { return {nullptr, memory()}; }

  /// Takes memory that `stream` may use at once. When the Room's memory is dropped, `last` may use
  /// it for something else: it was the last stream to use it.
  virtual Room take(std::uint64_t bytes, Kind kind, std::uint32_t stream, std::uint32_t last) = 0;
  /// Lets a stream copy what the test has written to the memory, or back. Do not wait.
  virtual void write(const Room& /*room*/, std::uint32_t /*stream*/) {}
  virtual void read(const Room& /*room*/, std::uint32_t /*stream*/) {}
  /// Waits until a stream has done what it was given. False if it has not by then.
  virtual bool synchronize(std::uint32_t /*stream*/, std::chrono::seconds /*limit*/) {
    return true;
  }

  /// Frees all memory, so that other memory comes to the same addresses. All Rooms have been given
  /// back.
  virtual void renew() {}
  /// What this process did that no correct program does to the driver, or an empty string.
  virtual std::string misuse() const { return {}; }
};

}  // namespace xylem::test::mixed
