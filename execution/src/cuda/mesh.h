// SPDX-License-Identifier: Apache-2.0
//
// A mesh of GPUs. Each rank has an allocation on its device, which its peers open:
//
//   stop word │ flags, one for each channel and peer │ scratch
//
// A flag is 1 if its peer has signalled. A stream waits for it by a memory operation, which
// occupies no multiprocessor, and clears it. A constant that is waited for works in a graph, too,
// which may be launched many times; a counter would not.
//
// If the mesh is stopped, the stop word is set, and kernels that begin after that do nothing. All
// flags are set again and again until the streams have done what they were given: a stream that
// goes on clears the flags for which it has waited.
#pragma once

#include "cuda/driver.h"
#include "cuda/loaded_kernels.h"
#include "cuda/shared_memory.h"
#include "xylem/execution/mesh.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace xylem::execution::cuda {

/// The memory of the meshes of one device. It is used again, and given back to the driver only at
/// the end: to free it waits for the device, where a stream may wait for a call of another
/// communicator. All threads may call it.
class MeshMemories {
 public:
  static constexpr std::uint64_t kWords = 4096;  ///< Bytes before the scratch.

  struct Memory {
    CUdeviceptr words = 0;          ///< On the device: words, then scratch.
    std::uint64_t* done = nullptr;  ///< Pinned: how many calls the streams have done.
    CUdeviceptr done_on_device = 0;
  };

  MeshMemories(const Driver& driver, CUcontext context, std::uint64_t scratch_bytes)
      : driver_(driver), context_(context), scratch_bytes_(scratch_bytes) {}
  MeshMemories(const MeshMemories&) = delete;
  MeshMemories& operator=(const MeshMemories&) = delete;
  /// Frees all memory, except what peers or streams may still use.
  ~MeshMemories();

  /// Of each memory.
  std::uint64_t scratch_bytes() const noexcept { return scratch_bytes_; }
  std::uint64_t bytes() const noexcept { return kWords + scratch_bytes_; }

  /// The contents are undefined. The context must be current.
  Result<Memory> take();
  /// Nobody uses the memory any more.
  void give_back(const Memory& memory) noexcept;

 private:
  const Driver& driver_;
  const CUcontext context_;
  const std::uint64_t scratch_bytes_;
  std::mutex mutex_;
  std::vector<Memory> free_;  // «mutex_»
};

class CudaMesh final : public Mesh {
 public:
  /// The device, and what is loaded there. `memory` and `memories` outlive the mesh.
  struct Site {
    std::shared_ptr<const Driver> driver;
    std::shared_ptr<const LoadedKernels> kernels;
    CUdevice device = 0;
    SharedMemory& memory;
    MeshMemories& memories;
  };

  static Result<std::unique_ptr<Mesh>> make(const Site& site, std::uint32_t rank);
  ~CudaMesh() override;

  MeshSeat seat() const noexcept override { return seat_; }
  std::uint64_t scratch_bytes() const noexcept override { return site_.memories.scratch_bytes(); }
  Status join(std::span<const MeshSeat> seats) override;
  Result<double> measure() override;
  Result<Enqueued> enqueue(const StreamProgram& program, const StreamCall& call) override;
  Result<bool> block(void* stream, std::uint64_t number) override;
  void stop() noexcept override;
  bool release() noexcept override;

 private:
  CudaMesh(const Site& site, std::uint32_t rank)
      : site_(site), driver_(*site.driver), rank_(rank) {}
  Status set_up();
  Status prepare_memory();
  Status make_streams();
  Status give(const StreamProgram& program, const StreamCall& call, const Enqueued& place);
  Status follow_earlier(CUstream stream, const Enqueued& place, const StreamCall& call);
  Status run_round(CUstream stream,
                   const StreamProgram& program,
                   const StreamCall& call,
                   std::uint64_t round);
  Status run_local(CUstream stream,
                   const StreamProgram& program,
                   const StreamProgram::Step& step,
                   const StreamCall& call,
                   std::uint64_t round);
  std::byte* place_of(const StreamProgram& program,
                      const StreamProgram::Operand& operand,
                      const StreamCall& call,
                      std::uint64_t round) const noexcept;
  Status note_end(CUstream stream);
  CUevent end_of(std::uint64_t number) const noexcept { return ends_[number % kKnownCalls]; }
  /// The flag at rank `at` that rank `from` sets.
  CUdeviceptr flag(std::uint32_t at, std::uint32_t from, std::uint32_t channel) const noexcept;
  CUdeviceptr stop_word() const noexcept { return bases_[rank_]; }
  // Memory operations are collected, and given to the stream together.
  Status add_write(CUstream stream, CUdeviceptr word, std::uint32_t value);
  Status add_wait(CUstream stream, CUdeviceptr word);
  Status flush(CUstream stream);
  bool is_drained() const noexcept;

  const Site site_;
  const Driver& driver_;
  const std::uint32_t rank_;
  CUcontext context_ = nullptr;
  MeshMemories::Memory memory_;
  MeshSeat seat_;
  std::vector<MeshSeat> seats_;     ///< Of all ranks, after join().
  std::vector<CUdeviceptr> bases_;  ///< [r]: the memory of rank r as this device reaches it.
  CUstream own_ = nullptr;          ///< For calls that do not hold their streams.
  CUstream releases_ = nullptr;  ///< Of the greatest priority, so that no waiting stream blocks it.
  CUevent begin_ = nullptr;      ///< Of the caller's stream, for calls on `own_`.
  static constexpr std::size_t kKnownCalls = 64;
  /// [n % kKnownCalls]: the end of call number n, for the last calls.
  std::array<CUevent, kKnownCalls> ends_{};
  CUstream last_ = nullptr;  ///< The stream of the last call that was not captured.
  std::mutex mutex_;         ///< Protects the calls, and so all that they change.
  std::vector<CUstreamBatchMemOpParams> operations_;
  std::atomic<std::uint64_t> issued_{
      0};  ///< Calls that were given to streams, except for captures.
  std::atomic<bool> is_stopped_{false};
  std::atomic<bool> was_captured_{false};
};

}  // namespace xylem::execution::cuda
