// SPDX-License-Identifier: Apache-2.0
//
// A GPU that copies, reduces and scales for an engine, by the CUDA driver.
//
// Each queue is a stream of high priority. After each piece of work the stream writes the number of
// the work into pinned memory, so a poll reads a word and calls no driver. Work that follows work
// of another queue waits for an event. Nothing waits for a kernel of another process, and no kernel
// waits.
#pragma once

#include "cuda/driver.h"
#include "cuda/gates.h"
#include "cuda/pinned_pool.h"
#include "xylem/base/clock.h"
#include "xylem/execution/compute.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace xylem::execution::cuda {

struct CudaComputeOptions {
  int device = 0;  ///< As cuDeviceGet() counts.
  std::uint32_t queues = 4;
  std::span<const std::byte> image{};  ///< The kernels as nvcc made them: a fatbin.
  std::vector<std::string>
      kernel_names{};  ///< [id] is the kernel that KernelId id names, or empty.
};

class CudaCompute final : public Compute {
 public:
  /// Makes streams and loads the kernels. That may have to wait for what runs on the device, so
  /// make it before any stream waits for a call. The device's primary context is kept while the
  /// object exists.
  static Result<std::shared_ptr<CudaCompute>> make(std::shared_ptr<const Driver> driver,
                                                   const CudaComputeOptions& options);
  ~CudaCompute() override;

  /// A gate that opens when `stream` has done everything that it was given so far. Any thread may
  /// call it.
  Ticket gate_after(CUstream stream) noexcept;
  /// A gate for which everything waits that `stream` is given after this call. Any thread may call
  /// it.
  Ticket gate_before(CUstream stream) noexcept;

  std::uint32_t queues() const noexcept override {
    return static_cast<std::uint32_t>(queues_.size());
  }
  Ticket enqueue(std::uint32_t queue,
                 const ComputeWork& work,
                 std::span<const Ticket> after) noexcept override;
  bool has_completed(Ticket ticket) noexcept override;
  void cancel(Ticket /*ticket*/) noexcept override {}  // A stream does all that it was given.
  void open(Ticket gate) noexcept override { gates_->open(gate); }
  void forget(Ticket gate) noexcept override { gates_->forget(gate); }
  Status health() const override;
  std::byte* allocate_scratch(std::uint64_t bytes) noexcept override;
  void free_scratch(std::byte* memory) noexcept override;

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

  CudaCompute(std::shared_ptr<const Driver> driver, int device) noexcept
      : driver_(std::move(driver)), device_(device) {}
  Status set_up(const CudaComputeOptions& options);
  Status allocate_words();
  Status make_queue(int priority);
  Status load(const CudaComputeOptions& options);

  void follow(Queue& queue, Ticket before) noexcept;
  void issue(const Queue& queue, const ComputeWork& work) noexcept;
  void launch(const Queue& queue, KernelId kernel, std::uint64_t threads, void* arguments) noexcept;
  bool is_done(const Queue& queue, std::uint64_t number) const noexcept;
  /// Notes an error; true if there is one.
  bool note(CUresult result, std::string_view function) noexcept;
  CUresult ask(Queue& queue) noexcept;
  Ticket gate(Result<Ticket> made) noexcept;

  const std::shared_ptr<const Driver> driver_;
  const int device_;
  CUcontext context_ = nullptr;
  CUlibrary library_ = nullptr;
  std::vector<CUkernel> kernels_;
  std::uint32_t most_blocks_ = 1;
  std::uint64_t* words_ = nullptr;  ///< Pinned: one word for each queue, then those of the gates.
  std::vector<Queue> queues_;
  std::optional<Gates> gates_;
  std::optional<PinnedPool> scratch_;

  mutable std::mutex mutex_;
  Status fault_;                       ///< «mutex_»
  std::atomic<bool> is_dead_ = false;  ///< The device does nothing any more.
};

}  // namespace xylem::execution::cuda
