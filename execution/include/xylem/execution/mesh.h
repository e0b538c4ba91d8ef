// SPDX-License-Identifier: Apache-2.0
//
// Mesh: the devices of a communicator's ranks, if each can access the memory of the others. A mesh
// enqueues stream programs on streams. So a call runs in the order of the caller's stream, and the
// CPU moves no data.
#pragma once

#include "xylem/base/memory.h"
#include "xylem/base/status.h"
#include "xylem/execution/stream_program.h"
#include "xylem/execution/ticket.h"
#include "xylem/transport/device_memory.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

namespace xylem::execution {

/// The data about a rank that the other ranks of a mesh need. Plain bytes, which ranks exchange.
struct MeshMember {
  transport::DevicePlace flags, staging;
  /// A random value, which is also stored beside the flags. join() compares the two to check that
  /// it has opened the right memory.
  std::array<std::byte, 16> nonce{};
  std::array<std::byte, 16> device{};  ///< Identifies the physical device.
  std::uint64_t staging_bytes = 0;
};
static_assert(std::is_trivially_copyable_v<MeshMember>);

/// The addresses at which a rank accesses the staging memory of each rank. Plain bytes, which ranks
/// exchange.
using MeshView = std::array<std::uint64_t, kMostMeshRanks>;

/// What the ranks of a mesh inform each other of: that a rank uses an allocation, at which address
/// a peer has opened it, and that it need not be open any longer. Plain bytes.
struct MeshMessage {
  enum class Kind : std::uint32_t { share, opened, closed };
  Kind kind = Kind::share;
  std::uint64_t bytes = 0;    ///< For `share`: the size of the allocation.
  std::uint64_t address = 0;  ///< For `opened`; 0 if the peer cannot access the allocation.
  transport::DevicePlace place;
};
static_assert(std::is_trivially_copyable_v<MeshMessage>);

/// A message for a rank of the mesh.
struct MeshPost {
  std::uint32_t to = 0;
  MeshMessage message;
};

/// A call on a mesh.
struct StreamCall {
  void* stream = nullptr;    ///< The caller's stream (Stream::handle).
  bool holds_stream = true;  ///< Whether later work on the stream waits for the call.
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  double factor = 1;
  /// For a call that is captured: enqueue() fails with `busy` while peers open its buffers, so that
  /// the graph need not copy them. Without this, such a call uses staging memory.
  bool waits_for_peers = false;
};

/// The result of enqueuing a call on a stream.
struct Enqueued {
  void* stream = nullptr;    ///< Runs the call: the caller's stream, or the mesh's own.
  std::uint64_t number = 0;  ///< Number of the call, from 1; 0 if it is captured.
  /// The stream is being captured into a graph: the call runs each time the graph is launched.
  bool is_captured = false;
  bool is_shared = false;  ///< The devices of peers may use the buffers of the call.
  /// A gate of the Compute that opens when the stream has completed the call. None if the call is
  /// captured, or if only a part of it was enqueued.
  Ticket end;
  /// OK if the whole call was enqueued. Otherwise the error because of which only a part of it was
  /// enqueued: stop the mesh (stop()).
  Status broken;
};

/// One rank's part of a mesh. Any thread may call block() and on_ended(). Only the token holder may
/// call stop() and release().
class Mesh {
 public:
  Mesh() = default;
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;
  /// Resources that streams or graphs may still use are kept until the process ends.
  virtual ~Mesh() = default;

  /// The data of this rank that the other ranks pass to join().
  virtual MeshMember member() const noexcept = 0;
  /// The size of the staging memory of each rank.
  virtual std::uint64_t staging_bytes() const noexcept = 0;
  /// Opens the memory of all ranks, which `members` describes in rank order, and returns where.
  /// Then call start(). Fails with `unsupported` if this device cannot access the memory of a
  /// peer's device. Also fails if a peer in another process has the same device, unless the
  /// processes use it by MPS: a waiting stream of one process might keep the device from running
  /// the other.
  virtual Result<MeshView> join(std::span<const MeshMember> members) = 0;
  /// `views` are the results of join() on all ranks, in rank order.
  virtual void start(std::span<const MeshView> views) = 0;
  /// Whether any rank may be unable to access a buffer of another rank, so that calls must run in
  /// rounds that fit into staging memory. Valid after join(), and the same on all ranks.
  virtual bool may_stage() const noexcept = 0;

  /// Enqueues a call on its stream, without waiting for the stream. If this fails, nothing has been
  /// enqueued; the code `cancelled` means that the mesh was stopped, and `busy` that too many calls
  /// of meshes of the device have not ended (try again when one has), or what
  /// StreamCall::waits_for_peers says. Only one thread at a time may call it.
  virtual Result<Enqueued> enqueue(const StreamProgram& program, const StreamCall& call) = 0;

  /// Returns the messages that this rank has for others, and removes them. Any thread may call both
  /// functions.
  virtual bool has_posts() const noexcept = 0;
  virtual std::vector<MeshPost> take_posts() = 0;
  /// Handles a message of rank `from`, after which there may be answers (take_posts()). May take
  /// long. Only one thread at a time may call it, after start().
  virtual void on_message(std::uint32_t from, const MeshMessage& message) = 0;

  /// Makes a stream of the device wait for the call with this number (Enqueued::number). False if
  /// many calls have followed, so that the mesh has no record of the call.
  virtual Result<bool> block(void* stream, std::uint64_t number) = 0;

  /// If some rank has published another call, or another number of elements, than this rank
  /// expected in a call up to call `number`: that rank. The outputs of this rank are then
  /// undefined. Any thread may call this.
  virtual std::optional<std::uint32_t> mismatched_rank(std::uint64_t number) const noexcept = 0;

  /// Call this when a call has ended, so that the mesh can check whether streams still wait for its
  /// calls. Any thread may call it.
  virtual void on_ended() noexcept = 0;

  /// Stops the mesh after an error: enqueue() fails from now on. Then call release() repeatedly,
  /// until it returns true.
  virtual void stop() noexcept = 0;
  /// If the mesh was stopped, unblocks the streams that wait for peers, and makes kernels that
  /// begin afterwards do nothing, so that they do not access memory of peers. Returns true if the
  /// streams have completed all calls; calls in graphs (has_graphs()) do not count.
  virtual bool release() noexcept = 0;
  /// Whether any call was captured into a graph.
  virtual bool has_graphs() const noexcept = 0;
};

}  // namespace xylem::execution
