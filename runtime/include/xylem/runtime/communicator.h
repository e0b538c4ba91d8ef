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

/// Returned for a rank that does not exist, and by an empty handle.
inline constexpr std::uint32_t kNoRank = UINT32_MAX;

/// A handle to a communicator; copies refer to the same communicator. Several threads may call
/// operations; the order of the calls must agree across ranks.
///
/// Buffers: `count` is in elements, and n is size(). Input and output must not overlap, unless the
/// call is in place as its comment allows. The caller keeps the buffers alive and untouched until
/// the Work has ended or, for a call on a stream, until the stream has continued after the call.
///
/// A handle is empty if it was default-constructed, if split() returned it to a rank that takes no
/// part, after destroy(), and if it is Runtime::world() after shutdown. The size of an empty handle
/// is 0, its rank and id are kNoRank, and every call on it except destroy() fails at once with
/// `invalid_argument`.
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
  /// begins when the call has ended. So neither the thread nor the program needs to wait for the
  /// Work: the stream's order says when buffers may be used again.
  ///
  /// The buffers of such calls are in the memory of the stream's device, or in pinned memory, which
  /// the device then reads and writes. The call returns without waiting for the stream. Only the
  /// driver may block, at the first use of a device, if the call needs more scratch than earlier
  /// ones, or if the stream's queue is full. The time limit counts from the call. If a call fails,
  /// the stream continues: the outputs are undefined, and if Status::holds_buffers() of the Work is
  /// true, they may still be written. So check the Work's status. Sends to one rank begin in the
  /// order of the calls, whatever their streams and tags.
  ///
  /// Calls on buffers of a device without a stream begin at once: wait for the device before them,
  /// and for the Work before the device uses the buffers again.
  Communicator on(Stream stream) const { return in_order_of(stream, true); }
  /// Like on(), but work enqueued on the stream after a call does not wait for the call. So the
  /// stream can compute meanwhile, and several calls can be under way at once. Work::block() makes
  /// a stream wait for the call where it needs the result.
  Communicator after(Stream stream) const { return in_order_of(stream, false); }

  /// A handle to this communicator whose collectives have a label. They match only collectives with
  /// the same label at the other ranks; different labels are a `mismatch`, which names both. Use it
  /// where the order of calls depends on chance, as in callbacks: without labels, calls with equal
  /// arguments in different orders would exchange their results unnoticed. 0 means no label. Local,
  /// and costs nothing. All labels share the communicator's one order of calls.
  Communicator labelled(std::uint64_t label) const {
    Communicator other = *this;
    other.label_ = label;
    return other;
  }

  /// Prepares a device: creates Xylem's streams on it and loads the kernels. Otherwise the first
  /// call on its memory does that, and the driver may then wait for work that runs on the device.
  /// Not collective; blocks.
  Status prepare(const Memory& device) const;

  /// Binds a device to this communicator on each rank. Collective; blocks. Every rank names the
  /// device whose streams it will use, or host memory if it has none. Prepares the devices, as
  /// prepare() does.
  ///
  /// True if the devices form a mesh: each reaches the memory of all others, and no two processes
  /// share one. Then collectives on streams of these devices, except all_to_all_v, run on the
  /// devices alone, without the CPU. All ranks must make such a call on a stream, or none. These
  /// calls may be captured into a CUDA graph. All ranks must launch their graphs and make their
  /// calls in the same order, and each must end before the next begins (docs/gpu.md). Destroy the
  /// graphs before the communicator. If calls do not match, outputs may already have been written
  /// when the Works report the `mismatch`.
  ///
  /// False if the devices form no mesh: nothing changes then, and the log (level info) says why.
  /// Fails with `invalid_argument` if another device is bound already.
  Result<bool> bind(const Memory& device) const;

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
  /// ranks, and may be freed when this returns.
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

  /// A barrier: it ends on no rank before it has begun on all ranks.
  Work barrier() const;

  /// Point to point. Messages of one source and tag are received in the order in which they were
  /// sent. A send ends when its buffer may be reused, which may be before the receive is called.
  /// `recv` without a source receives the first message with this tag from any rank; Work::source()
  /// is the rank that sent it.
  ///
  /// A message may be shorter than the buffer of its receive: the rest of the buffer stays
  /// unchanged, and Work::count() is the length. If the message is longer, the receive ends with
  /// `mismatch` and writes nothing. The send ends with `mismatch`, too, unless it has already
  /// ended. The communicator stays usable (Work::failed_alone()). If the types differ, all ranks
  /// get `mismatch`.
  Work send(ConstBuffer buffer, std::uint32_t to, std::uint32_t tag = 0) const;
  Work recv(Buffer buffer, std::optional<std::uint32_t> from, std::uint32_t tag = 0) const;

  /// Ranks of equal `color` form a communicator, ordered by (key, rank). Collective; blocks. A rank
  /// with `color` < 0 takes no part and gets an empty communicator.
  Result<Communicator> split(std::int32_t color, std::int32_t key) const;
  /// Makes a communicator of the same ranks. Collective; blocks.
  Result<Communicator> duplicate() const { return split(0, static_cast<std::int32_t>(rank())); }
  /// The companion of this communicator: the same ranks, for collectives whose order is independent
  /// of that of the collectives on the communicator itself, such as those of callbacks. All ranks
  /// must call the collectives on the companion in the same order, too. Local, and costs nothing:
  /// every communicator has one companion, and each call returns the same one. Fails with
  /// `unsupported` for a companion.
  ///
  /// The two fail together, and destroying the communicator ends the companion. A companion
  /// supports neither send(), recv() nor bind(): use the communicator for these.
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

  /// How a call of this shape is carried out. `count` is one rank's share, as in
  /// collectives::Counts. `root` is 0 for operations without a root.
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
