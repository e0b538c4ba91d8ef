// SPDX-License-Identifier: Apache-2.0
//
// Mesh: the devices of a communicator's ranks, which reach each other's memory. It enqueues stream
// programs on streams. So a call runs in the order of the caller's stream, and the CPU has no part
// in it.
#pragma once

#include "xylem/base/memory.h"
#include "xylem/base/status.h"
#include "xylem/execution/stream_program.h"
#include "xylem/transport/device_memory.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace xylem::execution {

/// What the other ranks of a mesh must know of a rank. Plain bytes, which ranks exchange.
struct MeshMember {
  transport::DevicePlace flags, scratch;
  std::array<std::byte, 16> nonce{};   ///< Is also in the memory of the flags.
  std::array<std::byte, 16> device{};  ///< Names the physical device.
  std::uint64_t scratch_bytes = 0;
};
static_assert(std::is_trivially_copyable_v<MeshMember>);

/// A call on a mesh.
struct StreamCall {
  void* stream = nullptr;    ///< The caller's stream (Stream::handle).
  bool holds_stream = true;  ///< Whether what is enqueued there later waits for the call.
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  double factor = 1;
};

/// What became of a call that was enqueued on a stream.
struct Enqueued {
  void* stream = nullptr;    ///< Where the call runs: its stream, or the mesh's own.
  std::uint64_t number = 0;  ///< Of the call, from 1; 0 for one that is captured.
  /// The stream is being captured into a graph: the call runs whenever the graph does.
  bool is_captured = false;
  bool is_direct =
      false;  ///< The devices of peers use the buffers of the call (Mesh::is_direct()).
  /// Why the stream got only a part of the call, so that the communicator must be stopped. OK if it
  /// got all of it.
  Status broken;
};

/// One rank's end of a mesh. Any thread may call block(); the token holder calls the functions that
/// stop the mesh.
class Mesh {
 public:
  Mesh() = default;
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;
  /// What streams or graphs may still use stays as long as the process.
  virtual ~Mesh() = default;

  virtual MeshMember member() const noexcept = 0;
  /// How much scratch each rank has.
  virtual std::uint64_t scratch_bytes() const noexcept = 0;
  /// Whether the ranks reach each other's buffers, too, so that programs may be direct. The same on
  /// all ranks, after join().
  virtual bool is_direct() const noexcept = 0;
  /// Opens the memory of all ranks, in rank order. Fails with `unsupported` if this device does
  /// not reach that of a peer, or if a peer in another process has the same device: it is not known
  /// whether a device runs one process while a stream of another one waits.
  virtual Status join(std::span<const MeshMember> members) = 0;

  /// How fast this device reads memory of the rank after this one, in 10^9 bytes per second. All
  /// ranks measure at the same time, between join() and the first call. Waits for the device.
  virtual Result<double> measure() = 0;

  /// Enqueues a call on its stream. The host does not wait for the stream. On failure nothing is
  /// enqueued; `cancelled` says that the mesh was stopped. One thread at a time.
  virtual Result<Enqueued> enqueue(const StreamProgram& program, const StreamCall& call) = 0;

  /// Lets a stream of the device wait for the call with this number. False if that call was too
  /// long ago to be known.
  virtual Result<bool> block(void* stream, std::uint64_t number) = 0;

  /// Call this when a call has ended, so that the device knows which streams still wait. Any thread
  /// may call it.
  virtual void on_ended() noexcept = 0;

  /// Kernels that begin from now on do nothing, so they touch no memory of peers, and streams do
  /// not wait any more. Call release() until it returns true.
  virtual void stop() noexcept = 0;
  /// Lets streams go on that wait for peers. True if they have done all calls, except those of
  /// graphs that may be launched again (has_graphs()). A mesh that was not stopped is not touched.
  virtual bool release() noexcept = 0;
  /// Whether calls were captured.
  virtual bool has_graphs() const noexcept = 0;
};

}  // namespace xylem::execution
