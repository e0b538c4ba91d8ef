// SPDX-License-Identifier: Apache-2.0
//
// A GPU that copies, reduces and scales for an engine, by the CUDA driver.
//
// Each queue is a stream of high priority. After each piece of work the stream writes the number of
// the work into pinned memory, so a poll reads a word and calls no driver. Work that follows work
// of another queue waits for an event. Nothing waits for a kernel of another process, and no kernel
// waits.
#pragma once

#include "cuda/block_pool.h"
#include "cuda/cuda_mesh.h"
#include "cuda/driver.h"
#include "cuda/gates.h"
#include "cuda/loaded_kernels.h"
#include "cuda/shared_memory.h"
#include "xylem/base/clock.h"
#include "xylem/base/mutex.h"
#include "xylem/execution/cuda.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace xylem::execution::cuda {

class CudaCompute final : public Compute {
 public:
  /// Makes streams and loads the kernels. That may have to wait for what runs on the device, so
  /// make it before any stream waits for a call. The device's primary context is kept while the
  /// object exists. When the last reference is dropped, the object is freed as soon as no stream
  /// waits for a call.
  static Result<std::shared_ptr<CudaCompute>> make(std::shared_ptr<const Driver> driver,
                                                   const CudaOptions& options);

  /// Gives everything back to the driver. Nothing may be called any more.
  void free(const NoStreamWaits& proof) noexcept;

  Result<Ticket> gate_after(void* stream) override;
  Result<Ticket> gate_before(void* stream) override;
  std::uint32_t queues() const noexcept override {
    return static_cast<std::uint32_t>(queues_.size());
  }
  Ticket enqueue(std::uint32_t queue,
                 const ComputeWork& work,
                 std::span<const Ticket> after) noexcept override;
  bool has_completed(Ticket ticket) noexcept override;
  void cancel(Ticket /*ticket*/) noexcept override {}  // A stream does all that is enqueued.
  void open(Ticket gate) noexcept override { gates_->open(gate); }
  void forget(Ticket gate) noexcept override { gates_->forget(gate); }
  Status health() const override;
  std::byte* allocate_scratch(std::uint64_t bytes) noexcept override;
  void free_scratch(std::byte* memory) noexcept override;
  std::byte* allocate_device_scratch(std::uint64_t bytes) noexcept override {
    return device_scratch_->take(bytes);
  }
  void free_device_scratch(std::byte* memory) noexcept override {
    device_scratch_->give_back(memory);
  }
  transport::DeviceMemory* device_memory() noexcept override { return shared_.get(); }
  Result<std::unique_ptr<Mesh>> make_mesh(std::uint32_t rank) override;

 private:
  struct Queue {
    CUstream stream = nullptr;
    CUevent event = nullptr;        ///< Recorded when another queue has to follow this one.
    std::uint64_t recorded = 0;     ///< The last work that the event covers.
    std::uint64_t issued = 0;       ///< The number of the last work.
    std::uint64_t* done = nullptr;  ///< In pinned memory: the number of the last work that is done.
    CUdeviceptr done_on_device = 0;
    Clock::time_point asked_at{};  ///< When the driver was last asked for the stream's state.
  };

  explicit CudaCompute(std::shared_ptr<const Driver> driver) noexcept
      : driver_(std::move(driver)) {}
  Status check_that_streams_may_wait() const;
  Status set_up(const CudaOptions& options);
  Status allocate_words();
  CUdeviceptr word_on_device(std::size_t word) const noexcept {
    return words_on_device_ + word * sizeof(std::uint64_t);
  }
  Status make_queue(int priority);

  void follow(Queue& queue, Ticket before) noexcept;
  void issue(const Queue& queue, const ComputeWork& work) noexcept;
  bool is_done(const Queue& queue, std::uint64_t number) const noexcept;
  /// Notes an error; true if there is one.
  bool note(CUresult result, std::string_view function) noexcept;
  CUresult ask(Queue& queue) noexcept;

  const std::shared_ptr<const Driver> driver_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  std::shared_ptr<const LoadedKernels> kernels_;
  /// Pinned: one word for each queue, one for copies to the host, then those of the gates.
  std::uint64_t* words_ = nullptr;
  CUdeviceptr words_on_device_ = 0;
  std::vector<Queue> queues_;
  int failed_asks_ = 0;  ///< The last answers of the driver to ask() that were errors.
  std::unique_ptr<Gates> gates_;
  std::unique_ptr<BlockPool<PinnedSource>> scratch_;
  std::unique_ptr<BlockPool<DeviceSource>> device_scratch_;
  std::unique_ptr<SharedMemory> shared_;
  std::unique_ptr<MeshMemories> meshes_;

  mutable Mutex mutex_;
  Status fault_ XYLEM_LOCKING(guarded_by(mutex_));
  std::atomic<bool> has_fault_ = false;  ///< True if `fault_` is set.
  bool streams_may_wait_ = true;         ///< CudaOptions::streams_may_wait.
  std::atomic<bool> is_dead_ = false;    ///< The device does nothing any more.
};

}  // namespace xylem::execution::cuda
