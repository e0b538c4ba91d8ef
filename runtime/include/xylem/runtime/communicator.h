// SPDX-License-Identifier: Apache-2.0
//
// Communicator: an ordered set of ranks with a message space of its own, and the operations on it.
//
// Every operation is asynchronous and returns a Work; `comm.all_reduce(…).wait()` blocks. All ranks
// call collectives on one communicator in the same order, with the same operation, element type,
// counts, reduction and root. If they do not, every rank gets the error `mismatch`, which names
// both sides, and no output is corrupted. A call with a bad argument returns a Work that has ended
// with an error.
#pragma once

#include "xylem/base/api.h"
#include "xylem/base/status.h"
#include "xylem/runtime/plan_info.h"
#include "xylem/runtime/types.h"
#include "xylem/runtime/work.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace xylem {

namespace runtime {
class Group;
struct EvenArguments;
}  // namespace runtime

/// The value that functions return instead of a rank if there is no such rank, or if the handle is
/// empty.
inline constexpr std::uint32_t kNoRank = UINT32_MAX;

/// A handle to a communicator; copies refer to the same communicator. Several threads may call
/// operations. Collectives must be called in the same order on all ranks.
///
/// Buffers: `count` is in elements, and n is size(). Input and output must not overlap, unless the
/// call is in place as its comment allows. The caller keeps the buffers alive and untouched until
/// the Work has ended or, for a call on a stream, until the stream begins the work enqueued after
/// the call.
///
/// A handle is empty in four cases: it was default-constructed; destroy() was called on it; split()
/// returned it to a rank with a negative color; or Runtime::world() returned it after shutdown().
/// The size of an empty handle is 0, its rank and id are kNoRank, and every call on it except
/// destroy() fails at once with `invalid_argument`.
class XYLEM_API Communicator {
 public:
  Communicator() noexcept = default;

  std::uint32_t rank() const noexcept;
  std::uint32_t size() const noexcept;
  /// The number by which logs and error messages name this communicator.
  std::uint32_t id() const noexcept;
  /// The world rank (rank in the job) of rank `rank` of this communicator; kNoRank if there is
  /// none.
  std::uint32_t world_rank(std::uint32_t rank) const noexcept;

  /// A handle to the same communicator whose calls run in the order of a stream. A call begins when
  /// the stream has completed the work enqueued before the call. Work enqueued after the call
  /// begins when the call has ended. So the application need not wait for the Work before it
  /// enqueues work on the same buffers.
  ///
  /// The buffers of such calls are in the memory of the stream's device, or in pinned host memory.
  /// The call returns without waiting for the stream. However, the driver may block the call in
  /// three cases: it is the first on its device, it needs more scratch memory than earlier calls,
  /// or the stream's queue is full. The time limit of the operation counts from the call. If a call
  /// fails, the stream continues: the outputs are undefined, and if Status::holds_buffers() of the
  /// Work is true, they may still be written. So check the Work's status. Sends to one rank begin
  /// in the order of the calls, even if their streams or tags differ.
  ///
  /// Through a handle without a stream, a call on device buffers begins at once. So wait for the
  /// device's work on the buffers before the call, and wait for the Work before the device uses the
  /// buffers again.
  Communicator on(Stream stream) const { return in_order_of(stream, true); }
  /// Like on(), but work enqueued on the stream after a call does not wait for the call. So the
  /// stream can compute meanwhile, and several calls can be under way at once. Work::block() makes
  /// a stream wait for the call where the stream needs the result.
  Communicator after(Stream stream) const { return in_order_of(stream, false); }

  /// A handle to this communicator whose collectives have a label. Such a collective matches only a
  /// collective with the same label on the other ranks; otherwise both fail with `mismatch`, which
  /// names both labels. Use labels where the order of calls may differ between ranks by chance, as
  /// in callbacks. Without labels, two calls with equal arguments that ranks make in different
  /// orders would match each other unnoticed. 0 means no label. labelled() only makes a handle: it
  /// sends nothing. Labels do not make separate orders: all ranks must call the collectives of all
  /// labels in one order.
  Communicator labelled(std::uint64_t label) const {
    Communicator other = *this;
    other.label_ = label;
    return other;
  }

  /// Prepares a device: creates Xylem's streams on the device and loads the kernels. Without this,
  /// the first call on the device's memory does so, and the driver may then block the call until
  /// running work of the device has completed. Not collective; blocks.
  Status prepare(const Memory& device) const;

  /// Binds a device to this communicator on each rank. Collective; blocks. Every rank passes the
  /// device whose streams it will use, or host memory if it has no device. bind() also prepares the
  /// devices, as prepare() does.
  ///
  /// Returns `none` if a rank has no device: calls then run as without bind().
  ///
  /// Returns `same_memory` if every rank has a device. From then on, the buffers of a collective
  /// must be in device memory on all ranks, or in host memory on all ranks; otherwise the ranks get
  /// `mismatch`. (Pinned memory is host memory, and in a call on a stream, device memory.) In
  /// return, collectives on device memory move larger slices (XYLEM_DEVICE_SLICE), and their
  /// algorithm is chosen for devices. Messages may still have a device at one end only.
  ///
  /// Returns `mesh` if, in addition, each device reaches the memory of all others, and no two
  /// processes share a device without MPS. Then collectives on streams of these devices run on the
  /// devices alone, without the CPU. Either all ranks must make such a call on a stream,
  /// or no rank. These calls may be captured into a CUDA graph. All ranks must launch their graphs
  /// and make their calls in the same order, and each graph or call must end before the next begins
  /// (docs/gpu.md). Destroy the graphs before the communicator. If calls do not match, outputs may
  /// already have been written when the Works report the `mismatch`.
  ///
  /// If there is no mesh, the log (level info) contains the reason. If a rank has no device, but
  /// the communicator was bound before, this binding stays, and is returned. A communicator that
  /// split() or duplicate() makes of a bound one begins with `same_memory`, and so does its
  /// companion; the companion of a communicator that bind() itself has bound has `none`. Fails with
  /// `invalid_argument` if another device is bound already, and on the rank concerned if its device
  /// cannot be used.
  Result<Binding> bind(const Memory& device) const;
  /// Binds a device like bind(), but does not block, and makes no call of the communicator: the
  /// ranks agree in the background. Until they have, collectives on streams are carried out as
  /// without a mesh; from some call on, which is the same on all ranks, they run on the mesh, if
  /// there is one. A call blocks if this rank is 64 such calls ahead of the agreement.
  ///
  /// All ranks call it before the same collective on a stream of the device. From then on, either
  /// all ranks must make a collective on a stream, barriers included, or no rank. Later calls with
  /// the same device do nothing, and so do calls after bind(); bind() cannot follow. At most 16
  /// communicators of a process get a mesh in this way, since each mesh occupies memory of the
  /// device. If there is none for a communicator whose ranks are on one host, the log contains the
  /// reason, the first time as a warning.
  ///
  /// Fails with `invalid_argument` if it was called with another device before, or if the
  /// communicator has not begun with `same_memory`; and if the device cannot be used.
  Status bind_later(const Memory& device) const;
  /// What bind() or bind_later() has resulted in so far, or what this communicator began with.
  Binding binding() const noexcept;

  /// output[i] = op over ranks of input[i]. In place: output.data == input.data.
  Work all_reduce(ConstBuffer input, Buffer output, ReduceOp op = RedOp::sum) const;
  /// Like all_reduce, but only `root` gets the result; the `output` of other ranks is ignored.
  Work reduce(ConstBuffer input, Buffer output, ReduceOp op, std::uint32_t root) const;
  /// The `output` of every rank becomes the root's `input`; the `input` of other ranks is ignored.
  /// In place: equal addresses.
  Work broadcast(ConstBuffer input, Buffer output, std::uint32_t root) const;
  /// A broadcast that is in place on all ranks.
  Work broadcast(Buffer buffer, std::uint32_t root) const {
    return broadcast(buffer, buffer, root);
  }

  /// output = the ranks' inputs in rank order: output.count = n · input.count. In place: input =
  /// output + rank · input.count.
  Work all_gather(ConstBuffer input, Buffer output) const;
  /// Like all_gather, but rank i contributes counts[i] elements. `counts` must be the same on all
  /// ranks, and may be freed when the call returns.
  Work all_gather_v(ConstBuffer input, Buffer output, std::span<const std::uint64_t> counts) const;

  /// Rank i's output = part i of the reduced inputs: input.count = n · output.count. In place:
  /// output = input + rank · output.count.
  Work reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op = RedOp::sum) const;
  /// Like reduce_scatter, but rank i gets counts[i] elements. `counts` is as in all_gather_v.
  Work reduce_scatter_v(ConstBuffer input,
                        Buffer output,
                        std::span<const std::uint64_t> counts,
                        ReduceOp op = RedOp::sum) const;

  /// Part i of rank j's output = part j of rank i's input; all parts have the same count. In place:
  /// equal addresses, at the cost of a copy.
  Work all_to_all(ConstBuffer input, Buffer output) const;
  /// Sends send_counts[i] elements to rank i and receives recv_counts[i] elements from it, both
  /// packed in rank order. Not possible in place.
  Work all_to_all_v(ConstBuffer input,
                    std::span<const std::uint64_t> send_counts,
                    Buffer output,
                    std::span<const std::uint64_t> recv_counts) const;

  /// Root's output = the ranks' inputs in rank order. In place at the root: input = output + root ·
  /// input.count.
  Work gather(ConstBuffer input, Buffer output, std::uint32_t root) const;
  /// Rank i's output = part i of root's input. In place at the root: output = input + root ·
  /// output.count.
  Work scatter(ConstBuffer input, Buffer output, std::uint32_t root) const;

  /// A barrier: the Work ends only after all ranks have called barrier().
  Work barrier() const;

  /// Point to point. Messages of one source and tag are received in the order in which they were
  /// sent. A send ends when its buffer may be reused, which may be before the receive is called.
  /// `recv` without `from` receives the first message with this tag from any rank; Work::source()
  /// is then the sender's world rank.
  ///
  /// A message may be shorter than the buffer of its receive: the rest of the buffer stays
  /// unchanged, and Work::count() is the length. If the message is longer, the receive ends with
  /// `mismatch` and writes nothing. The send ends with `mismatch`, too, unless it has already
  /// ended. The communicator stays usable (Work::failed_alone()). If the types differ, all ranks
  /// get `mismatch`.
  Work send(ConstBuffer buffer, std::uint32_t to, std::uint32_t tag = 0) const;
  Work recv(Buffer buffer, std::optional<std::uint32_t> from, std::uint32_t tag = 0) const;

  /// Ranks of equal `color` form a communicator, ordered by (key, rank). Collective; blocks. A rank
  /// with `color` < 0 joins no communicator and gets an empty handle.
  Result<Communicator> split(std::int32_t color, std::int32_t key) const;
  /// Makes a communicator of the same ranks. Collective; blocks.
  Result<Communicator> duplicate() const { return split(0, static_cast<std::int32_t>(rank())); }
  /// The companion of this communicator: the same ranks, for collectives whose order is independent
  /// of that of the collectives on the communicator itself, such as collectives that callbacks
  /// call. All ranks must call the collectives on the companion in the same order, too. companion()
  /// sends nothing: every communicator has exactly one companion. Fails with `unsupported` if this
  /// communicator is itself a companion.
  ///
  /// If the communicator or its companion fails, both fail. Destroying the communicator ends its
  /// companion. A companion supports neither send(), recv() nor bind(): use the communicator for
  /// these.
  Result<Communicator> companion() const;
  /// Ends this communicator on this rank; not collective. Fails with `busy` while operations are
  /// pending. Returns OK for an empty communicator.
  Status destroy();
  /// Ends every pending operation on all ranks with `cancelled`; later calls on the communicator
  /// fail, too. Returns within a second.
  Status abort(std::string_view why);
  /// Registers a callback for the failure of the communicator: a time-out, a mismatch, a lost rank
  /// or an abort. `tell` is called once, also on a rank that has made no call, and at once if the
  /// communicator has failed already. The calling thread may hold locks of Xylem, so `tell` must
  /// return quickly and must not call Xylem. A later `tell` replaces an earlier one.
  void on_failure(std::function<void(const Status&)> tell) const;

  /// How a collective call with these arguments is carried out. `count` is a number of elements: of
  /// the buffer for all_reduce, reduce and broadcast; of one rank's input for all_gather and
  /// gather; of one rank's output for reduce_scatter and scatter; of one part for all_to_all.
  /// `root` is 0 for operations without a root.
  Result<PlanInfo> plan_info(std::string_view collective,
                             std::uint64_t count,
                             DataType type,
                             std::uint32_t root = 0) const;

  explicit operator bool() const noexcept { return group_ != nullptr; }

 private:
  friend class Runtime;
  explicit Communicator(std::shared_ptr<runtime::Group> group) noexcept
      : group_(std::move(group)) {}
  Work submit(runtime::EvenArguments&& arguments) const;
  template <typename Make>
  Work submit_made(Make&& make) const;
  Communicator in_order_of(Stream stream, bool holds_stream) const {
    Communicator other = *this;
    other.stream_ = stream;
    other.holds_stream_ = holds_stream;
    return other;
  }
  std::shared_ptr<runtime::Group> group_;
  std::optional<Stream> stream_;
  bool holds_stream_ = true;
  std::uint64_t label_ = 0;
};

}  // namespace xylem
