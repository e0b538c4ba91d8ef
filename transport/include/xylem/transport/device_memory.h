// SPDX-License-Identifier: Apache-2.0
//
// DeviceMemory: the interface by which a transport within a host shares device memory, so that
// peers can read it in place.
#pragma once

#include "xylem/base/memory.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace xylem::transport {

struct ConstRegion;

/// Identifies bytes of device memory to other processes of this host. The fields may be forged by
/// the peer that sent them, so open() checks them.
struct DevicePlace {
  /// The driver's IPC handle for the allocation. Zeros if the allocation has none; then only the
  /// process that owns it can open it.
  std::array<std::byte, 64> handle{};
  std::uint64_t process = 0;     ///< A random number that identifies the owning process.
  std::uint64_t allocation = 0;  ///< Number of the allocation; its process never reuses it.
  std::uint64_t address = 0;     ///< Address of the bytes in the owning process.
  std::uint64_t offset = 0;      ///< Offset of the bytes in the allocation.
};
static_assert(sizeof(DevicePlace) == 96);

/// A copy from device memory to host memory, which may still be in progress.
struct DeviceRead {
  enum class State : std::uint8_t {
    pending,
    done,
    failed,  ///< The device failed. The content of the target is undefined.
  };
  Memory memory{};           ///< The kind of the source; the source's device makes the copy.
  std::uint64_t number = 0;  ///< Number of the copy on its device; 0 if the device refused it.
};

/// Access to device memory of this process and of its peers. Only one thread at a time may call it:
/// the thread that drives the transport and the engine.
class DeviceMemory {
 public:
  /// Discards cached facts about addresses, so that they are looked up again. Call this when a
  /// user's call begins, since the user may have freed memory and allocated other memory at the
  /// same address.
  virtual void renew() noexcept = 0;
  /// Sets `place` to identify the memory of `source` to peers. False if no peer can reach the
  /// memory.
  virtual bool share(const ConstRegion& source, DevicePlace& place) noexcept = 0;
  /// The address at which the device of `reader` can access the `bytes` at `place`; null if it
  /// cannot access them. The address is valid until close() has been called once for each open() of
  /// this place.
  virtual const std::byte* open(const DevicePlace& place,
                                std::uint64_t bytes,
                                const Memory& reader) noexcept = 0;
  virtual void close(const DevicePlace& place, const Memory& reader) noexcept = 0;

  /// Begins to copy bytes of a device to the host. Source and target must stay valid while the copy
  /// is pending. If the target is registered (register_host()), the call does not block.
  virtual DeviceRead begin_read(std::byte* target, const ConstRegion& source) noexcept = 0;
  virtual DeviceRead::State state_of(const DeviceRead& read) noexcept = 0;
  /// Registers host memory, so that devices can write to it directly. The memory must stay valid
  /// until unregister_host() releases it. May block until devices are idle. False if the driver
  /// refuses: begin_read() into the memory may then block until the copy has ended.
  virtual bool register_host(std::byte* memory, std::uint64_t bytes) noexcept = 0;
  /// Unregisters host memory. False if the driver cannot do this at present, since device streams
  /// wait for calls of Xylem: the memory must then stay mapped until the process ends.
  virtual bool unregister_host(std::byte* memory) noexcept = 0;

 protected:
  ~DeviceMemory() = default;
};

}  // namespace xylem::transport
