// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace xylem::test {

/// Device memory for the buffers of tests. Only one thread may use an object.
class BufferMemory {
 public:
  BufferMemory() = default;
  BufferMemory(const BufferMemory&) = delete;
  BufferMemory& operator=(const BufferMemory&) = delete;
  virtual ~BufferMemory() = default;

  /// Returns a device address, aligned to 256 bytes.
  virtual std::byte* allocate(std::size_t bytes) = 0;
  /// Frees all memory that allocate() has returned.
  virtual void clear() noexcept = 0;
  virtual void write(std::byte* device, const void* source, std::size_t bytes) const = 0;
  virtual void read(void* target, const std::byte* device, std::size_t bytes) const = 0;
};

}  // namespace xylem::test
