// SPDX-License-Identifier: Apache-2.0
//
// CudaCompute: a GPU that copies, reduces and scales for an engine, by the CUDA driver.
//
// Each queue is a stream of high priority. After each piece of work, the stream writes the number
// of the work into pinned memory. So polling reads a word, and does not call the driver. Work that
// depends on work of another queue waits for an event of that queue. Nothing waits for a kernel of
// another process, and no kernel waits for anything.
#pragma once

#include "cuda/block_pool.h"
#include "cuda/cuda_mesh.h"
#include "cuda/driver.h"
#include "cuda/gates.h"
#include "cuda/host_scratch.h"
#include "cuda/loaded_kernels.h"
#include "cuda/shared_memory.h"
#include "cuda/waiting_streams.h"
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
  /// Creates streams and loads the kernels, which may block until the device has completed its
  /// work. So call this before any stream waits for a call. The device's primary context is
  /// retained while the object exists. When the last reference is dropped, the object is freed as
  /// soon as no stream waits for a call.
  static Result<std::shared_ptr<CudaCompute>> make(std::shared_ptr<const Driver> driver,
                                                   const CudaOptions& options);

  /// Frees all resources of the driver. Call no other function afterwards.
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
  void cancel(Ticket /*ticket*/) noexcept override {}  // A stream runs all enqueued work.
  void open(Ticket gate) noexcept override { gates_->open(gate); }
  void forget(Ticket gate) noexcept override { gates_->forget(gate); }
  Status health() const override;
  DeviceUse device_use() const noexcept override;
  std::byte* allocate_scratch(std::uint64_t bytes) noexcept override {
    return scratch_->take(bytes);
  }
  void free_scratch(std::byte* memory) noexcept override { scratch_->give_back(memory); }
  Status pin_scratch(std::byte* memory) override {
    return driver_->check(scratch_->pin(memory), "cuMemHostRegister");
  }
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
    CUevent event = nullptr;        ///< Recorded when other queues must wait for this queue.
    std::uint64_t recorded = 0;     ///< Number of the last work before the event.
    std::uint64_t issued = 0;       ///< Number of the last enqueued work.
    std::uint64_t* done = nullptr;  ///< In pinned memory: number of the last completed work.
    CUdeviceptr done_on_device = 0;
    Clock::time_point asked_at{};  ///< When the driver was last queried about the stream.
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
  /// Records `result` as the fault of the device if it is the first error. True if it is an error.
  bool note(CUresult result, std::string_view function) noexcept;
  CUresult ask(Queue& queue) noexcept;

  const std::shared_ptr<const Driver> driver_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  std::shared_ptr<const LoadedKernels> kernels_;
  /// In pinned memory: one word for each queue, one word for copies to the host, then the words of
  /// the gates.
  std::uint64_t* words_ = nullptr;
  CUdeviceptr words_on_device_ = 0;
  std::vector<Queue> queues_;
  int failed_asks_ = 0;  ///< Number of consecutive queries of ask() that failed.
  std::unique_ptr<Gates> gates_;
  std::unique_ptr<HostScratch> scratch_;
  std::unique_ptr<BlockPool<DeviceSource>> device_scratch_;
  std::unique_ptr<SharedMemory> shared_;
  std::unique_ptr<MeshMemories> meshes_;
  std::unique_ptr<WaitingStreams> waiting_;
  bool fuses_on_shared_devices_ = false;  ///< See CudaOptions.

  mutable Mutex mutex_;
  Status fault_ XYLEM_LOCKING(guarded_by(mutex_));
  std::atomic<bool> has_fault_ = false;  ///< True if `fault_` is set.
  std::atomic<bool> is_dead_ = false;    ///< The device is lost: it completes no work.
};

}  // namespace xylem::execution::cuda
