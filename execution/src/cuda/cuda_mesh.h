// SPDX-License-Identifier: Apache-2.0
//
// A mesh of GPUs. Kernels read and write the inputs and outputs of all ranks in place. A buffer
// that some peer cannot access (exports.h) is copied to and from staging memory, slice by slice.
//
// A stream waits for a flag by a memory operation, which occupies no multiprocessor, and then
// clears the flag. Since the flag has the same value in each call, a graph that contains the wait
// can be launched many times. A counter would have another value in each launch.
//
// Ranks signal each other by kernels, or if all are in one process and share a device, by memory
// operations. (Memory operations cannot write memory of other devices.) Then a small call takes
// three commands and an event: memory operations, a kernel, memory operations.
//
// On a rank that shares its device with no other rank, kernels of small calls also wait for flags.
// Then a small call takes a kernel and an event (Signals::fused). Such a kernel occupies
// multiprocessors while it waits. That is safe since peers, which it waits for, need other devices,
// and since the blocks of all meshes of the process fit on the device at once: calls of one mesh
// run one after the other.
//
// After the mesh has been stopped, release() sets the stop word. Kernels that begin afterwards do
// nothing: they neither access memory of peers nor set their flags. release() also sets all flags
// of this rank to kReleased, again and again until its streams have completed all enqueued work.
// Once is not enough, since a stream clears each flag for which it has waited, and may wait for the
// same flag again.
#pragma once

#include "cuda/call_events.h"
#include "cuda/driver.h"
#include "cuda/exports.h"
#include "cuda/gates.h"
#include "cuda/loaded_kernels.h"
#include "cuda/mesh_memories.h"
#include "cuda/mesh_peers.h"
#include "cuda/stream_batch.h"
#include "cuda/waiting_streams.h"
#include "xylem/execution/mesh.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace xylem::execution::cuda {

class CudaMesh final : public Mesh {
 public:
  /// A device, with the driver, kernels and memory that its meshes use. The references must outlive
  /// the mesh.
  struct Site {
    std::shared_ptr<const Driver> driver;
    std::shared_ptr<const LoadedKernels> kernels;
    CUdevice device = 0;
    MeshMemories& memories;
    Gates& gates;
    WaitingStreams& waiting;
    bool fuses_on_shared_devices = false;  ///< See CudaOptions.
  };

  static Result<std::unique_ptr<Mesh>> make(const Site& site, std::uint32_t rank);
  CudaMesh(const CudaMesh&) = delete;
  CudaMesh& operator=(const CudaMesh&) = delete;
  ~CudaMesh() override;

  MeshMember member() const noexcept override { return peers_.member(); }
  std::uint64_t staging_bytes() const noexcept override { return site_.memories.staging_bytes(); }
  Result<MeshView> join(std::span<const MeshMember> members) override;
  void start(std::span<const MeshView> views) override;
  bool may_stage() const noexcept override { return !peers_.are_together(); }
  Result<Enqueued> enqueue(const StreamProgram& program, const StreamCall& call) override;
  bool has_posts() const noexcept override { return exports_.has_posts(); }
  std::vector<MeshPost> take_posts() override { return exports_.take_posts(); }
  void on_message(std::uint32_t from, const MeshMessage& message) override {
    exports_.on_message(from, message);
  }
  Result<bool> block(void* stream, std::uint64_t number) override;
  std::optional<std::uint32_t> mismatched_rank(std::uint64_t number) const noexcept override;
  void on_ended() noexcept override;
  void stop() noexcept override;
  bool release() noexcept override;
  bool has_graphs() const noexcept override { return has_graphs_; }

 private:
  CudaMesh(const Site& site, std::uint32_t rank)
      : site_(site),
        driver_(*site.driver),
        rank_(rank),
        peers_(driver_, rank),
        exports_(driver_),
        events_(driver_),
        batch_(driver_, *site.kernels),
        released_(driver_, *site.kernels) {}
  Status set_up();
  Status make_streams();

  /// A buffer of a call, as peers use it.
  struct Shared {
    const std::byte* data = nullptr;
    const Exports::Export* exported = nullptr;  ///< Null if all ranks use the same address.
    bool is_staged = false;
    bool is_opening = false;  ///< Peers are opening its allocation.
  };
  /// A call that is being enqueued.
  struct Enqueuing {
    const StreamProgram& program;
    const StreamCall& call;
    Shared input, output;
  };

  Shared share(const std::byte* data, std::uint64_t bytes, const Enqueued& place);
  Status enqueue_all(const Enqueuing& call, const Enqueued& place, const Gates::ByWrite& end);
  Status enqueue_round(const Enqueuing& call, std::uint64_t round);
  Status stage_in(const Enqueuing& call, std::uint64_t round);
  Status stage_out(const Enqueuing& call, std::uint64_t round);
  Status add_copy(const StreamProgram& program,
                  CUdeviceptr to,
                  CUdeviceptr from,
                  std::uint64_t bytes);
  Status add_exchange(const Enqueuing& call, const StreamProgram::Step& step, std::uint64_t round);
  ExchangeArguments::Operand operand_of(const Enqueuing& call,
                                        const StreamProgram::Operand& operand,
                                        std::uint64_t round) const noexcept;
  CUdeviceptr published(const Enqueuing& call,
                        const Shared& buffer,
                        const StreamProgram::Chunk& chunk,
                        std::uint32_t peer,
                        std::uint64_t round) const noexcept;
  Status add_signal(const Enqueuing& call, const StreamProgram::Step& step, std::uint64_t round);
  Status note_end(const Enqueued& place, const Gates::ByWrite* end);
  Result<Gates::ByWrite> begin_call(const Enqueued& place);

  bool is_drained() const noexcept;

  const Site site_;
  const Driver& driver_;
  const std::uint32_t rank_;
  CUcontext context_ = nullptr;
  MeshMemories::Memory memory_;
  MeshPeers peers_;
  Exports exports_;
  CUstream own_ = nullptr;  ///< Runs the calls whose StreamCall::holds_stream is false.
  /// Runs release(). It has the highest priority, so that no waiting stream blocks it.
  CUstream releases_ = nullptr;
  CallEvents events_;
  // Of the call that is being enqueued: of its stream, and of the capture of its stream.
  unsigned long long stream_id_ = 0;
  std::optional<cuuint64_t> capture_;
  std::uint32_t waiting_blocks_ = 0;  ///< Of kernels that wait; 0 if none do.
  Signals signals_of_small_ = Signals::by_kernels, signals_of_large_ = Signals::by_kernels;
  StreamBatch batch_;
  StreamBatch released_;  ///< For release(), since another thread may be using `batch_`.
  /// Number of calls that were enqueued, without captured calls.
  std::atomic<std::uint64_t> issued_{0};
  CountedWait wait_;  ///< Begins when a call is enqueued, ends when all calls have ended.
  std::atomic<bool> is_stopped_{false};
  std::atomic<bool> has_graphs_{false};
};

}  // namespace xylem::execution::cuda
