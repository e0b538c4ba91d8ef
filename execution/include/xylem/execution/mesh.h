// SPDX-License-Identifier: Apache-2.0
//
// Mesh: the devices of a communicator's ranks, which reach each other's memory. It gives stream
// programs to streams. So a call runs in the order of the caller's stream, and the CPU has no part
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
struct MeshSeat {
  transport::DevicePlace scratch;      ///< Its scratch and flags.
  std::array<std::byte, 16> device{};  ///< Names the physical device.
  std::uint64_t scratch_bytes = 0;
};
static_assert(std::is_trivially_copyable_v<MeshSeat>);

/// A call on a mesh.
struct StreamCall {
  void* stream = nullptr;    ///< The caller's stream (Stream::handle).
  bool holds_stream = true;  ///< Whether what the stream is given later waits for the call.
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  double factor = 1;
};

/// What became of a call that was given to a stream.
struct Enqueued {
  void* stream = nullptr;    ///< Where the call runs: its stream, or the mesh's own.
  std::uint64_t number = 0;  ///< Of the call, from 1; 0 for one that is captured.
  /// The stream is being captured into a graph: the call runs whenever the graph does.
  bool is_captured = false;
};

/// One rank's end of a mesh. Any thread may call enqueue() and block(); the token holder calls the
/// functions that stop the mesh.
class Mesh {
 public:
  Mesh() = default;
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;
  /// If streams still have calls of a mesh that was stopped, waits up to two seconds for them.
  virtual ~Mesh() = default;

  virtual MeshSeat seat() const noexcept = 0;
  /// How much scratch each rank has.
  virtual std::uint64_t scratch_bytes() const noexcept = 0;
  /// Opens the scratch of all ranks, in rank order. Fails with `unsupported` if this device does
  /// not reach that of a peer, or if a peer in another process has the same device: it is not known
  /// whether a device runs one process while a stream of another one waits.
  virtual Status join(std::span<const MeshSeat> seats) = 0;

  /// How fast this device reads memory of the rank after this one, in 10^9 bytes per second. All
  /// ranks measure at the same time, between join() and the first call. Waits for the device.
  virtual Result<double> measure() = 0;

  /// Gives a call to its stream. The host does not wait for the stream. On failure the stream may
  /// have got a part of the call, so the communicator must be stopped.
  virtual Result<Enqueued> enqueue(const StreamProgram& program, const StreamCall& call) = 0;

  /// Lets a stream of the device wait for the call with this number. False if that call was too
  /// long ago to be known.
  virtual Result<bool> block(void* stream, std::uint64_t number) = 0;

  /// No step that has not begun touches memory of a peer any more, and no stream waits for one.
  /// Call release() until it returns true.
  virtual void stop() noexcept = 0;
  /// Lets the streams go on that wait for peers. True if they have done all calls. After a call was
  /// captured never true, since its graph may be launched again.
  virtual bool release() noexcept = 0;
};

}  // namespace xylem::execution
