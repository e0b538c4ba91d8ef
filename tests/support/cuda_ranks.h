// SPDX-License-Identifier: Apache-2.0
//
// CUDA devices for ranks that are threads, by the driver that CUDA_DRIVER names: the stand-in of
// tests/fakes/cuda_driver in CI, libcuda.so.1 on a machine with a GPU.
#pragma once

#include "cuda/driver.h"
#include "runtime/src/wires/compute_devices.h"
#include "support/cuda_memory.h"
#include "support/ranks.h"
#include "xylem/execution/cuda.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace xylem::test {

/// How often a function of the stand-in was called, named as exported; 0 if the driver is a GPU's,
/// which does not count. Needs a driver that was opened.
unsigned long calls_of_stand_in(const char* function);
/// Whether the driver that CUDA_DRIVER names is the stand-in, whose streams are late for sure.
/// Needs a driver that was opened.
bool is_stand_in();

/// Gives each rank a device, which it may share with other ranks, and memory there.
class CudaRanks {
 public:
  explicit CudaRanks(std::uint32_t ranks, std::size_t bytes = std::size_t{32} << 20);
  /// Scratch of each rank for calls that the devices carry out by themselves.
  void set_mesh_scratch(std::uint64_t bytes) noexcept { mesh_scratch_bytes_ = bytes; }
  /// As if the program ran with CUDA_DEVICE_MAX_CONNECTIONS=1.
  void let_no_stream_wait() noexcept { streams_may_wait_ = false; }

  /// As many ranks, over shared memory, with their devices.
  RankOptions options(const runtime::Environment& environment = {});
  /// The devices of a rank, for RankOptions::devices.
  std::vector<runtime::ComputeDevice> of_rank(std::uint32_t rank);
  CudaMemory& memory(std::uint32_t rank) { return memories_[rank]; }
  Memory kind(std::uint32_t rank) const noexcept {
    return {MemoryKind::cuda, static_cast<std::int32_t>(rank) % devices_};
  }
  /// How many devices this process sees.
  int devices() const noexcept { return devices_; }
  const execution::cuda::Driver& driver() const noexcept { return *driver_; }
  const std::shared_ptr<const execution::cuda::Driver>& shared_driver() const noexcept {
    return driver_;
  }

 private:
  std::shared_ptr<const execution::cuda::Driver> driver_;
  int devices_ = 1;
  std::uint64_t mesh_scratch_bytes_ = execution::CudaOptions{}.mesh_scratch_bytes;
  bool streams_may_wait_ = true;
  std::deque<CudaMemory> memories_;
};

}  // namespace xylem::test
