// SPDX-License-Identifier: Apache-2.0
//
// CUDA devices for ranks that are threads. CUDA_DRIVER names the driver: in CI, the stand-in of
// tests/fakes/cuda_driver; on a machine with a GPU, libcuda.so.1.
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
#include <optional>
#include <vector>

namespace xylem::test {

/// The number of calls so far of an exported function of the stand-in. With the driver of a GPU,
/// which does not count calls, it is 0. A driver must be open.
unsigned long calls_of_stand_in(const char* function);
/// Whether the driver that CUDA_DRIVER names is the stand-in. The stand-in's streams always run
/// later than the thread that enqueues. A driver must be open.
bool is_stand_in();

/// Assigns each rank a device, which ranks may share, and memory on the device.
class CudaRanks {
 public:
  explicit CudaRanks(std::uint32_t ranks, std::size_t bytes = std::size_t{32} << 20);
  /// Sets the size of the staging memory that each rank has for calls on a mesh, in bytes.
  void set_mesh_staging(std::uint64_t bytes) noexcept { mesh_staging_bytes_ = bytes; }
  /// Devices behave as in a process with CUDA_DEVICE_MAX_CONNECTIONS=1, where no stream may wait.
  void let_no_stream_wait() noexcept { most_waiting_streams_ = 0; }
  /// Sets CudaOptions::most_waiting_streams.
  void let_streams_wait(std::uint32_t most) noexcept { most_waiting_streams_ = most; }

  /// Each device gets as many queues as in production. Without this call, the devices of the ranks
  /// have one to four queues.
  void use_default_queues() noexcept { varies_queues_ = false; }

  /// Whether small calls on meshes are one kernel even if ranks share a device: if the environment
  /// variable TEST_FUSED is set. A GPU then behaves as if each rank had its own.
  static bool fuses_calls();

  /// Options for ranks over shared memory, with one device each.
  RankOptions options(const runtime::Environment& environment = {});
  /// The devices of a rank, for RankOptions::devices.
  std::vector<runtime::ComputeDevice> of_rank(std::uint32_t rank);
  CudaMemory& memory(std::uint32_t rank) { return memories_[rank]; }
  Memory kind(std::uint32_t rank) const noexcept {
    return {MemoryKind::cuda, static_cast<std::int32_t>(rank) % devices_};
  }
  /// The number of devices of this process.
  int devices() const noexcept { return devices_; }
  const execution::cuda::Driver& driver() const noexcept { return *driver_; }
  const std::shared_ptr<const execution::cuda::Driver>& shared_driver() const noexcept {
    return driver_;
  }

 private:
  std::shared_ptr<const execution::cuda::Driver> driver_;
  int devices_ = 1;
  std::uint64_t mesh_staging_bytes_ = execution::CudaOptions{}.mesh_staging_bytes;
  std::optional<std::uint32_t> most_waiting_streams_;
  bool varies_queues_ = true;
  std::deque<CudaMemory> memories_;
};

/// A communicator of all ranks that begins with Binding::same_memory. Call it once on each rank.
Communicator with_same_memory(const Runtime& runtime);

}  // namespace xylem::test
