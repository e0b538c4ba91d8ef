// SPDX-License-Identifier: Apache-2.0
//
// Compute: a device that copies, reduces and scales bytes for the engine. A Compute has queues. It
// runs the work of a queue later, in the order in which the work was enqueued. More work may be
// enqueued while earlier work is pending. An execution without a Compute is computed at once by the
// CPU (host_compute.h).
#pragma once

#include "xylem/base/status.h"
#include "xylem/execution/mesh.h"
#include "xylem/execution/reduce_kernel.h"
#include "xylem/execution/ticket.h"
#include "xylem/transport/device_memory.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace xylem::execution {

/// A reduction on a device has at most this many sources.
inline constexpr std::uint32_t kMostSourcesOnDevice = 128;

/// A copy, a reduction or a scaling of one or more adjacent slices. The Compute must be able to
/// access all memory to which the members point. This memory must stay valid until the work has
/// completed.
struct ComputeWork {
  enum class Kind : std::uint8_t {
    copy,    ///< target = sources[0].
    reduce,  ///< target = sources[0] ∘ sources[1] ∘ …, by `reduce`, then `finish`.
    scale,   ///< target = sources[0] · factor, by `scale`.
  };
  Kind kind = Kind::copy;
  /// Write `target` with non-temporal stores, because the output is too large for the caches and is
  /// not read again soon.
  bool non_temporal = false;
  /// Write `shared` with non-temporal stores, because the cores that read it share no cache with
  /// this core.
  bool shared_non_temporal = false;
  std::uint32_t element_bytes = 1;
  std::uint64_t bytes = 0;
  std::byte* target = nullptr;
  /// A second target, which receives the same bytes as `target`; null if there is none. Only a
  /// reduction on the CPU may have a second target.
  std::byte* shared = nullptr;
  /// The addresses of the sources. The Compute may modify this array during enqueue(), and does not
  /// access it afterwards.
  std::span<const void*> sources{};
  ReduceKernel reduce = nullptr;
  ScaleKernel scale = nullptr;
  KernelId kernel = 0;  ///< The device kernel that computes the same as `reduce` or `scale`.
  Finish finish{};
  double factor = 1;
};

/// How much a Compute has used its device, apart from what the engine has enqueued.
struct DeviceUse {
  std::uint64_t driver_calls = 0;
  std::chrono::nanoseconds driver_time{0};  ///< Of all threads, with the driver's context.
  /// Bytes of calls on meshes that were copied to and from staging memory.
  std::uint64_t mesh_copied_bytes = 0;
};

/// Runs the copies, reductions and scalings of an engine. Any thread may call gate_after(),
/// gate_before(), forget(), open(), and the functions that allocate, pin and free scratch. Only the
/// thread that drives the engine may call the other functions.
class Compute {
 public:
  Compute() = default;
  Compute(const Compute&) = delete;
  Compute& operator=(const Compute&) = delete;
  /// Precondition: no work is pending.
  virtual ~Compute() = default;

  /// The number of queues, at least one. They are numbered from 0.
  virtual std::uint32_t queues() const noexcept = 0;
  /// Enqueues a piece of work. It begins when the earlier work of its queue and all work in `after`
  /// have completed; `after` may contain tickets of any queue of this Compute. This function always
  /// returns a ticket; health() reports errors.
  virtual Ticket enqueue(std::uint32_t queue,
                         const ComputeWork& work,
                         std::span<const Ticket> after) noexcept = 0;
  /// For the ticket of work: true if the work has completed. The CPU and transports can then read
  /// its result, and the Compute does not access its memory. For the ticket of a gate: true if the
  /// gate has opened.
  virtual bool has_completed(Ticket ticket) noexcept = 0;
  /// Declares that nobody needs the result of the work. The Compute may skip the work if it has not
  /// begun. The ticket still completes in its order.
  virtual void cancel(Ticket ticket) noexcept = 0;
  /// Makes a gate that opens when `stream`, a stream of the device (Stream::handle), has completed
  /// all work that was enqueued on it before this call. Fails if the device has no streams, or if
  /// the gate cannot be enqueued.
  virtual Result<Ticket> gate_after(void* stream);
  /// Makes a gate that blocks all work that is enqueued on `stream` after this call, until open()
  /// opens the gate. Call open() exactly once for each such gate.
  virtual Result<Ticket> gate_before(void* stream);
  /// Opens a gate that gate_before() has made. The ticket of such a gate completes only by this
  /// call.
  virtual void open(Ticket gate) noexcept = 0;
  /// Releases a gate that gate_after() or a mesh (Enqueued::end) has made. Nobody may use the
  /// ticket of the gate afterwards. Call this exactly once for each such gate, even if the gate has
  /// not opened.
  virtual void forget(Ticket gate) noexcept = 0;
  /// Allocates scratch for programs that this Compute runs. The CPU and the transports can access
  /// it; this Compute, after pin_scratch(). Memory that nobody has accessed costs only addresses.
  /// It is aligned to cache lines. Null if there is no memory. Pass the memory to free_scratch()
  /// when no work uses it.
  virtual std::byte* allocate_scratch(std::uint64_t bytes) noexcept;
  /// Makes scratch accessible to this Compute. Pinning memory again does nothing. Fails with
  /// `exhausted` if the system cannot pin so much memory.
  virtual Status pin_scratch(std::byte* memory);
  virtual void free_scratch(std::byte* memory) noexcept;
  /// Allocates memory of this device, for scratch that neither the CPU nor a transport writes.
  /// Peers can read it if device_memory() shares it with them. Null if no such memory is available:
  /// use scratch of the host (allocate_scratch()) instead.
  virtual std::byte* allocate_device_scratch(std::uint64_t /*bytes*/) noexcept { return nullptr; }
  virtual void free_device_scratch(std::byte* /*memory*/) noexcept {}
  /// The object that shares memory of this device with peers, and opens memory of peers for this
  /// device. It lives as long as the Compute. Null if the device cannot share memory: its messages
  /// are then copied through host memory.
  virtual transport::DeviceMemory* device_memory() noexcept { return nullptr; }
  /// Makes the part of a new mesh that belongs to this device and to `rank`. Destroy the Mesh
  /// before the Compute. This function may wait for work that runs on the device. It fails with
  /// `unsupported` if the device cannot be in a mesh.
  virtual Result<std::unique_ptr<Mesh>> make_mesh(std::uint32_t rank);
  /// OK, or the first fault of the device. After a fault, all tickets complete, and results are
  /// undefined.
  virtual Status health() const = 0;
  /// Any thread may call this.
  virtual DeviceUse device_use() const noexcept { return {}; }
};

}  // namespace xylem::execution
