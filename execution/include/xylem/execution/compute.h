// SPDX-License-Identifier: Apache-2.0
//
// Compute: a device that copies, reduces and scales bytes for the engine. Work is done later, in
// the order of its queues, and more work may be enqueued behind work that is still pending.
// Executions without a device are computed by the CPU at once (host_compute.h).
#pragma once

#include "xylem/base/status.h"
#include "xylem/execution/mesh.h"
#include "xylem/execution/reduce_kernel.h"
#include "xylem/transport/device_memory.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace xylem::execution {

/// Names one piece of work of a Compute. The work of a queue is numbered from 1 and completes in
/// that order. A ticket with number 0 stands for work that is done.
struct Ticket {
  std::uint64_t number = 0;
  std::uint32_t queue = 0;

  bool is_pending() const noexcept { return number != 0; }
  friend bool operator==(const Ticket&, const Ticket&) = default;
};

/// A device reduces at most this many sources at once.
inline constexpr std::uint32_t kMostSourcesOnDevice = 128;

/// One slice of a copy, a reduction or a scaling. The Compute must reach all memory that is named
/// here. This memory must stay valid until the work has completed.
struct ComputeWork {
  enum class Kind : std::uint8_t {
    copy,    ///< target = sources[0].
    reduce,  ///< target = sources[0] ∘ sources[1] ∘ …, by `reduce`, then `finish`.
    scale,   ///< target = sources[0] · factor, by `scale`.
  };
  Kind kind = Kind::copy;
  /// Use non-temporal stores for `target`: it is too large for the caches and not read again soon.
  bool non_temporal = false;
  /// Use non-temporal stores for `shared`: its readers share no cache with this core.
  bool shared_non_temporal = false;
  std::uint32_t element_bytes = 1;
  std::uint64_t bytes = 0;
  std::byte* target = nullptr;
  /// Receives the same bytes as the target. Only for reductions on the CPU, and null otherwise.
  std::byte* shared = nullptr;
  /// The Compute may change these pointers, and does not read them after enqueue() has returned.
  std::span<const void*> sources{};
  ReduceKernel reduce = nullptr;
  ScaleKernel scale = nullptr;
  KernelId kernel = 0;  ///< The same as `reduce` or `scale`, for devices.
  Finish finish{};
  double factor = 1;
};

/// Does the copies, reductions and scalings of an engine. The thread that drives the engine makes
/// the calls, one at a time; any thread may call gate_after(), gate_before(), open() of a gate of
/// gate_before(), and the functions for scratch.
class Compute {
 public:
  Compute() = default;
  Compute(const Compute&) = delete;
  Compute& operator=(const Compute&) = delete;
  /// Precondition: no work is pending.
  virtual ~Compute() = default;

  /// How many queues enqueue() accepts; at least one.
  virtual std::uint32_t queues() const noexcept = 0;
  /// Enqueues a piece of work. It begins when the earlier work of its queue and all of `after` have
  /// completed; the tickets in `after` belong to work of any queues of this Compute. Cannot fail:
  /// see health().
  virtual Ticket enqueue(std::uint32_t queue,
                         const ComputeWork& work,
                         std::span<const Ticket> after) noexcept = 0;
  /// Whether the work has completed: its result can be read by the CPU and by transports, and the
  /// Compute touches none of its memory any more.
  virtual bool has_completed(Ticket ticket) noexcept = 0;
  /// Declares that the result of the work is not needed any more. Work that has not begun need not
  /// run, but its ticket still completes in order.
  virtual void cancel(Ticket ticket) noexcept = 0;
  /// A gate that opens when a stream of the device (Stream::handle) has completed all work that was
  /// enqueued on it so far. Fails if the device has no streams, or if the gate cannot be enqueued.
  virtual Result<Ticket> gate_after(void* stream);
  /// A gate that blocks all work enqueued on the stream from now on, until open() is called. It
  /// must be opened exactly once.
  virtual Result<Ticket> gate_before(void* stream);
  /// Opens a gate of gate_before(), whose ticket completes by this call only.
  virtual void open(Ticket gate) noexcept = 0;
  /// Releases a gate for which an execution waited: the execution does not use its ticket any more.
  /// Call this once for each such gate, even if the gate has not opened.
  virtual void forget(Ticket gate) noexcept = 0;
  /// Memory that the CPU, the transports and this Compute reach, for programs that this Compute
  /// runs; aligned to cache lines. Null if there is none. Pass it to free_scratch() when no work
  /// uses it.
  virtual std::byte* allocate_scratch(std::uint64_t bytes) noexcept;
  virtual void free_scratch(std::byte* memory) noexcept;
  /// Memory of this device for scratch that neither the CPU nor transports write. Peers can read it
  /// if device_memory() shares it with them. Null if there is no such memory: use scratch of the
  /// host (allocate_scratch()) instead.
  virtual std::byte* allocate_device_scratch(std::uint64_t /*bytes*/) noexcept { return nullptr; }
  virtual void free_device_scratch(std::byte* /*memory*/) noexcept {}
  /// Shares memory of this device with peers, and opens memory of peers for this device. Null if
  /// the device cannot share memory: then its messages go through the host. Lives as long as the
  /// Compute.
  virtual transport::DeviceMemory* device_memory() noexcept { return nullptr; }
  /// Makes this device's part of a new mesh, for a rank. Destroy it before the Compute. The call
  /// may wait for work that runs on the device. Fails with `unsupported` if the device cannot be in
  /// a mesh.
  virtual Result<std::unique_ptr<Mesh>> make_mesh(std::uint32_t rank);
  /// The first fault of the device. After a fault all tickets complete, and results are undefined.
  virtual Status health() const = 0;
};

}  // namespace xylem::execution
