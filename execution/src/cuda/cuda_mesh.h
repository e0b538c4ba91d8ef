// SPDX-License-Identifier: Apache-2.0
//
// A mesh of GPUs. Each rank has memory on its device, which its peers open:
//
//   flags:    stop word │ flags, one for each channel and peer │ nonce │ what peers have told
//   scratch
//
// In a direct call, ranks read and write each other's buffers: each tells its peers where its own
// are, together with the first signal, and kernels read what was told. All ranks are in one process
// then, where addresses mean the same to all of them.
//
// A flag is 1 if its peer has signalled. A stream waits for it by a memory operation, which
// occupies no multiprocessor, and clears it. A constant that is waited for works in a graph, too,
// which may be launched many times; a counter would not.
//
// If the mesh is stopped, the stop word is set, and kernels that begin after that do nothing: they
// neither read scratch nor set flags of peers. All own flags are set again and again until the
// streams have done what they were given: a stream that goes on clears the flags for which it has
// waited.
#pragma once

#include "cuda/driver.h"
#include "cuda/loaded_kernels.h"
#include "cuda/mesh_memories.h"
#include "cuda/shared_memory.h"
#include "xylem/base/mutex.h"
#include "xylem/execution/mesh.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace xylem::execution::cuda {

class CudaMesh final : public Mesh {
 public:
  /// The device, and what is loaded there. `memories` outlives the mesh.
  struct Site {
    std::shared_ptr<const Driver> driver;
    std::shared_ptr<const LoadedKernels> kernels;
    CUdevice device = 0;
    MeshMemories& memories;
  };

  // Places in the memory of flags.
  static constexpr std::uint64_t kEnded = 2112;  ///< ExchangeArguments::ended
  static constexpr std::uint64_t kTold = 2176;   ///< ExchangeArguments::told

  static Result<std::unique_ptr<Mesh>> make(const Site& site, std::uint32_t rank);
  CudaMesh(const CudaMesh&) = delete;
  CudaMesh& operator=(const CudaMesh&) = delete;
  ~CudaMesh() override;

  MeshMember member() const noexcept override { return member_; }
  std::uint64_t scratch_bytes() const noexcept override { return site_.memories.scratch_bytes(); }
  bool is_direct() const noexcept override { return is_direct_; }
  Status join(std::span<const MeshMember> members) override;
  Result<double> measure() override;
  Result<Enqueued> enqueue(const StreamProgram& program, const StreamCall& call) override;
  Result<bool> block(void* stream, std::uint64_t number) override;
  void on_ended() noexcept override;
  void stop() noexcept override;
  bool release() noexcept override;
  bool has_graphs() const noexcept override { return has_graphs_; }

 private:
  /// Peers' memory as this device reaches it.
  struct Peer {
    MeshMember member;
    CUdeviceptr flags = 0, scratch = 0;
  };

  /// An exchange that is not given to the stream yet, since it may set flags at its end.
  struct Exchange {
    ExchangeArguments arguments;
    KernelId kernel = 0;
    std::uint64_t bytes = 0;  ///< 0: there is none.
  };

  CudaMesh(const Site& site, std::uint32_t rank)
      : site_(site), driver_(*site.driver), rank_(rank) {}
  Status set_up();
  Status make_streams();
  Status prepare_memory();
  Status open(const MeshMember& member, Peer& peer);
  Status check_nonce(const Peer& peer) const;
  Status give(const StreamProgram& program,
              const StreamCall& call,
              const StreamCall& reached,
              const Enqueued& place);
  Status follow_earlier(const StreamCall& call, const Enqueued& place);
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
  Status note_end(const Enqueued& place);

  // Direct calls (cuda_mesh_direct.cc).
  Result<StreamCall> within_reach(const StreamProgram& program, const StreamCall& call);
  Result<std::byte*> copy_of(std::uint64_t bytes, std::vector<MeshMemories::More>& copies);
  PeerCall* told_at(std::uint32_t rank) const noexcept;
  Status begin_exchange(CUstream stream,
                        const StreamProgram& program,
                        const StreamProgram::Step& step,
                        const StreamCall& call);
  ExchangeArguments::Operand operand_of(const StreamProgram::Operand& operand,
                                        const StreamCall& call) const noexcept;
  bool add_to_exchange(const StreamProgram::Step& signal) noexcept;
  Status give_exchange(CUstream stream);

  CUevent end_of(std::uint64_t number) const noexcept { return ends_[number % kKnownCalls]; }
  /// The flag at rank `at` that rank `from` sets.
  CUdeviceptr flag(std::uint32_t at, std::uint32_t from, std::uint32_t channel) const noexcept;
  std::uint32_t* flag_pointer(std::uint32_t at,
                              std::uint32_t from,
                              std::uint32_t channel) const noexcept;
  const std::uint32_t* stop_word() const noexcept;
  // Signals and memory operations are collected, and given to the stream together.
  Status add(CUstream stream, const CUstreamBatchMemOpParams& operation);
  Status add_signal(CUstream stream,
                    const StreamProgram& program,
                    const StreamProgram::Step& step,
                    const StreamCall& call);
  Status add_wait(CUstream stream, CUdeviceptr flag);
  Status give_pending(CUstream stream, const StreamProgram& program);
  Status give_signals(CUstream stream, const StreamProgram& program);
  Status give_operations(CUstream stream);
  /// Notes that a stream has got a part of the call.
  Status given(CUresult result, std::string_view function);
  bool is_drained() const noexcept;
  void count() noexcept;

  static constexpr std::size_t kKnownCalls = 64;

  const Site site_;
  const Driver& driver_;
  const std::uint32_t rank_;
  CUcontext context_ = nullptr;
  /// Names and opens memory of meshes. Not that of the device, which belongs to the token holder.
  std::unique_ptr<SharedMemory> shared_;
  MeshMemories::Memory memory_;
  MeshMember member_;
  std::vector<Peer> peers_;  ///< All ranks, after join().
  CUstream own_ = nullptr;   ///< For calls that do not hold their streams.
  /// Of the greatest priority, so that no stream that waits blocks it.
  CUstream releases_ = nullptr;
  CUevent begin_ = nullptr;  ///< Of the caller's stream, for calls on `own_`.
  /// [n % kKnownCalls]: the end of call number n, for the last calls.
  std::array<CUevent, kKnownCalls> ends_{};
  bool is_direct_ = false;
  bool is_one_device_ = false;  ///< All ranks have the same device.
  /// Memory that peers reach, for buffers that they do not reach.
  std::vector<MeshMemories::More> input_copies_, output_copies_;
  Exchange exchange_;
  SignalArguments signals_;
  std::vector<CUstreamBatchMemOpParams> operations_;
  bool is_partly_given_ = false;  ///< The call that is being given.
  /// Held while an end is recorded, and while a stream is told to wait for it.
  Mutex ends_mutex_;
  /// The last call with an end.
  std::uint64_t ended_ XYLEM_LOCKING(guarded_by(ends_mutex_)) = 0;
  /// Calls that were given to streams, except for captures.
  std::atomic<std::uint64_t> issued_{0};
  Mutex count_mutex_;
  /// Among what streams wait for (Gates::add_other()).
  bool is_counted_ XYLEM_LOCKING(guarded_by(count_mutex_)) = false;
  std::atomic<bool> is_stopped_{false};
  std::atomic<bool> has_graphs_{false};
};

}  // namespace xylem::execution::cuda
