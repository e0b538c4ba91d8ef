// SPDX-License-Identifier: Apache-2.0
//
// CUDA devices for ranks that are threads, by the driver that CUDA_DRIVER names: the stand-in of
// tests/fakes/cuda_driver in CI, libcuda.so.1 on a machine with a GPU.
#pragma once

#include "cuda/driver.h"
#include "runtime/src/compute_devices.h"
#include "support/buffer_memory.h"
#include "xylem/execution/cuda.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace xylem::test {

/// Device memory that a rank's buffers are in, and a stream on which the rank reads and writes it.
class CudaMemory final : public BufferMemory {
 public:
  CudaMemory(std::shared_ptr<const execution::cuda::Driver> driver, int device, std::size_t bytes);
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
  const std::size_t bytes_;
  std::size_t used_ = 0;
  CUcontext context_ = nullptr;
  CUdeviceptr base_ = 0;
  CUstream stream_ = nullptr;
};

/// Gives each rank a device, which it may share with other ranks, and memory there.
class CudaRanks {
 public:
  explicit CudaRanks(std::uint32_t ranks, std::size_t bytes = std::size_t{32} << 20);
  /// Scratch of each rank for calls that the devices carry out by themselves.
  void set_mesh_scratch(std::uint64_t bytes) noexcept { mesh_scratch_bytes_ = bytes; }

  /// The devices of a rank, for RankOptions::devices.
  std::vector<runtime::ComputeDevice> of_rank(std::uint32_t rank);
  CudaMemory& memory(std::uint32_t rank) { return memories_[rank]; }
  Memory kind(std::uint32_t rank) const noexcept {
    return {MemoryKind::cuda, static_cast<std::int32_t>(rank) % devices_};
  }
  const execution::cuda::Driver& driver() const noexcept { return *driver_; }
  const std::shared_ptr<const execution::cuda::Driver>& shared_driver() const noexcept {
    return driver_;
  }

 private:
  std::shared_ptr<const execution::cuda::Driver> driver_;
  int devices_ = 1;
  std::uint64_t mesh_scratch_bytes_ = execution::CudaOptions{}.mesh_scratch_bytes;
  std::deque<CudaMemory> memories_;
};

}  // namespace xylem::test
