// SPDX-License-Identifier: Apache-2.0
//
// DeviceMemory: what a transport within a host needs from whoever drives the devices, so that peers
// can read device memory where it lies.
#pragma once

#include "xylem/base/memory.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace xylem::transport {

struct ConstRegion;

/// Names a piece of device memory for other processes of this host. Plain bytes, which a peer may
/// have made up: open() checks them.
struct DevicePlace {
  /// The driver's name for the allocation; zeros if it has none, so that only its own process can
  /// open it.
  std::array<std::byte, 64> handle{};
  std::uint64_t process = 0;     ///< A random number of the process that owns the memory.
  std::uint64_t allocation = 0;  ///< No other allocation of that process has or had this number.
  std::uint64_t address = 0;     ///< Of the bytes, in that process.
  std::uint64_t offset = 0;      ///< Of the bytes, in the allocation.
};
static_assert(sizeof(DevicePlace) == 96);

/// Device memory of this process and of its peers. All threads may call it.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  /// Names the memory of `source` for peers. False if none of them can reach it.
  virtual bool share(const ConstRegion& source, DevicePlace& place) noexcept = 0;
  /// The address at which the device that serves `reader` reaches these bytes, until they are
  /// closed as often as they were opened. Null if the device does not reach them.
  virtual const std::byte* open(const DevicePlace& place,
                                std::uint64_t bytes,
                                const Memory& reader) noexcept = 0;
  virtual void close(const DevicePlace& place, const Memory& reader) noexcept = 0;
  /// Copies device memory to the host, and waits for the copy. False if the device fails; what
  /// `target` contains is then undefined.
  virtual bool read(std::byte* target, const ConstRegion& source) noexcept = 0;

 protected:
  ~DeviceMemory() = default;
};

}  // namespace xylem::transport
