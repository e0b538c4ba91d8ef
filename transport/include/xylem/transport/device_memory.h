// SPDX-License-Identifier: Apache-2.0
//
// DeviceMemory: how a transport within a host shares device memory, so that peers can read it in
// place.
#pragma once

#include "xylem/base/memory.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace xylem::transport {

struct ConstRegion;

/// Names a piece of device memory for other processes of this host. These are plain bytes that a
/// peer may have forged, so open() checks them.
struct DevicePlace {
  /// The driver's name for the allocation; zeros if it has none, so that only its own process can
  /// open it.
  std::array<std::byte, 64> handle{};
  std::uint64_t process = 0;     ///< A random number that identifies the owning process.
  std::uint64_t allocation = 0;  ///< No other allocation of that process has or had this number.
  std::uint64_t address = 0;     ///< Address of the bytes in that process.
  std::uint64_t offset = 0;      ///< Offset of the bytes in the allocation.
};
static_assert(sizeof(DevicePlace) == 96);

/// A copy from device memory to the host that may not have ended.
struct DeviceRead {
  enum class State : std::uint8_t {
    pending,
    done,
    failed,  ///< The device failed. What the target contains is undefined.
  };
  Memory memory{};           ///< The memory that is read; its device makes the copy.
  std::uint64_t number = 0;  ///< Number of the copy on that device; 0 if it was refused.
};

/// Device memory of this process and of its peers. Only one thread at a time may call it: the
/// thread that drives the transport and the engine.
class DeviceMemory {
 public:
  /// Call this when a user's call begins: memory of this process may have been freed and allocated
  /// again before it. Facts about an address are then checked again before they are used.
  virtual void renew() noexcept = 0;
  /// Names the memory of `source` for peers. False if none of them can reach it.
  virtual bool share(const ConstRegion& source, DevicePlace& place) noexcept = 0;
  /// The address at which the device of `reader` reaches these bytes. It is valid until close() has
  /// been called as often as open(). Null if the device does not reach them.
  virtual const std::byte* open(const DevicePlace& place,
                                std::uint64_t bytes,
                                const Memory& reader) noexcept = 0;
  virtual void close(const DevicePlace& place, const Memory& reader) noexcept = 0;

  /// Begins to copy bytes of a device to the host. Source and target must stay valid while the copy
  /// is pending. If the target is registered (register_host()), this call does not wait for the
  /// device.
  virtual DeviceRead begin_read(std::byte* target, const ConstRegion& source) noexcept = 0;
  virtual DeviceRead::State state_of(const DeviceRead& read) noexcept = 0;
  /// Registers host memory, so that devices can write it directly. It must stay valid until
  /// unregister_host() releases it. May wait for devices. False if the driver refuses to register
  /// it: then begin_read() into it waits for the copy.
  virtual bool register_host(std::byte* memory, std::uint64_t bytes) noexcept = 0;
  /// Releases registered memory. False if this cannot be done now, because streams wait for calls:
  /// the memory must then stay mapped until the process ends.
  virtual bool unregister_host(std::byte* memory) noexcept = 0;

 protected:
  ~DeviceMemory() = default;
};

}  // namespace xylem::transport
