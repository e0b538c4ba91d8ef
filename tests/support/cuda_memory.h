// SPDX-License-Identifier: Apache-2.0
//
// Memory of a CUDA device for the buffers of tests.
#pragma once

#include "cuda/driver.h"
#include "support/buffer_memory.h"

#include <cstddef>
#include <memory>

namespace xylem::test {

/// Device memory for the buffers of one rank, and a stream for copies between this memory and the
/// host.
class CudaMemory final : public BufferMemory {
 public:
  /// Other processes can open neither managed memory nor mapped memory (cuMemMap). It is not
  /// certain that other devices can access managed memory, and they cannot access mapped memory.
  enum class Kind { device, managed, mapped };

  CudaMemory(std::shared_ptr<const execution::cuda::Driver> driver,
             int device,
             std::size_t bytes,
             Kind kind = Kind::device);
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  ~CudaMemory() override;

  std::byte* allocate(std::size_t bytes) override;
  void clear() noexcept override { used_ = 0; }
  void write(std::byte* device, const void* source, std::size_t bytes) const override;
  void read(void* target, const std::byte* device, std::size_t bytes) const override;
  CUstream stream() const noexcept { return stream_; }
  CUcontext context() const noexcept { return context_; }

 private:
  void copy(CUdeviceptr target, CUdeviceptr source, std::size_t bytes) const;

  const std::shared_ptr<const execution::cuda::Driver> driver_;
  const int device_;
  const Kind kind_;
  const std::size_t bytes_;  ///< For mapped memory, a whole number of granules.
  std::size_t used_ = 0;
  CUcontext context_ = nullptr;
  CUdeviceptr base_ = 0;
  CUstream stream_ = nullptr;
};

}  // namespace xylem::test
