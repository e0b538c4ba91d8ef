// SPDX-License-Identifier: Apache-2.0
//
// Calls: the calls of users, as data with checked arguments. The functions in this file check every
// rule of communicator.h that one rank can check by itself. Disagreements between ranks are found
// by Watch (watch.h).
#pragma once

#include "calls/caller.h"
#include "failure/situation.h"
#include "xylem/base/memory.h"
#include "xylem/base/status.h"
#include "xylem/collectives/schedule.h"
#include "xylem/runtime/types.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace xylem::runtime {

enum class CallKind : std::uint8_t { collective, send, recv };

/// One call of a user. Its arguments have been checked.
struct Call {
  CallKind kind = CallKind::collective;
  collectives::Collective collective = collectives::Collective::barrier;
  DataType type = DataType::uint8;
  ReduceOp op{};
  std::uint32_t root = 0;  ///< Root of a collective.
  /// Of a collective: collectives::Counts::count. Of a send or receive: the number of elements of
  /// its buffer.
  std::uint64_t count = 0;
  /// Set only for uneven calls, in which the shares of the ranks have different sizes.
  std::vector<std::uint64_t> input_counts, output_counts;
  const void* input = nullptr;
  void* output = nullptr;
  Memory memory{};  ///< The memory in which both buffers are.
  /// If set, the call begins when the earlier work on this stream is complete. If empty, the call
  /// begins at once.
  std::optional<Stream> stream;
  /// True if work that is enqueued on the stream after the call waits for the end of the call.
  bool holds_stream = true;
  Agreement agreement = Agreement::none;  ///< GroupMesh::agreement_on()
  /// The peer of a send or receive, as a rank of the communicator. kNone: receive from any rank.
  std::uint32_t peer = collectives::kNone;
  std::uint32_t tag = 0;
  std::uint64_t label = 0;  ///< Of a collective: its label (Communicator::labelled()); 0: none.
  /// Set if the runtime itself makes the call: owns the buffers for as long as the operation
  /// exists. The operation may exist after its Work has ended, if a transport still uses the
  /// buffers.
  std::shared_ptr<const void> owned;

  bool is_uneven() const noexcept { return !input_counts.empty() || !output_counts.empty(); }
  bool is_on_mesh() const noexcept { return agreement == Agreement::on_mesh; }
  /// True if this is an all_to_all_v. Only the two ranks of a part know the size of the part.
  bool has_private_counts() const noexcept {
    return is_uneven() && collective == collectives::Collective::all_to_all;
  }
};

/// The arguments of a collective with equal counts on all ranks. Only collectives that reduce use
/// `op`, and only collectives that have a root use `root`.
struct EvenArguments {
  collectives::Collective collective = collectives::Collective::barrier;
  ConstBuffer input;
  Buffer output;
  ReduceOp op;
  std::uint32_t root = 0;
  std::uint64_t label = 0;
};
Result<Call> even_call(const Caller& caller, EvenArguments arguments);

/// The arguments of a call that passed all checks, without the addresses of the buffers. A later
/// call whose arguments match these needs no other check.
class KnownArguments {
 public:
  /// Stores the arguments of `call`, an even call that `caller` has made.
  KnownArguments(const Caller& caller, const Call& call);

  /// True if `arguments` match the stored arguments, the buffers are in host memory, and they
  /// overlap only as in-place calls allow. Precondition: find_memory() has been called for the
  /// buffers. Arguments that do not match may still be valid: even_call() checks them.
  bool match(const EvenArguments& arguments) const noexcept;

 private:
  collectives::Collective collective_;
  DataType type_;
  RedOp op_;
  std::uint32_t root_;
  bool has_input_, has_output_;
  std::uint64_t input_count_, output_count_;
  std::uint64_t input_bytes_, output_bytes_;
  /// For an in-place call: the offset of the smaller buffer in the larger one, in bytes.
  std::uint64_t in_place_offset_;
};
/// Fills in a new call from the record of its plan and from arguments that have been checked.
void set_even(Call& call, const CallRecord& record, const EvenArguments& arguments) noexcept;

/// Checks the arguments of an all_gather_v or a reduce_scatter_v, and returns the call. `counts`
/// has one entry for each rank, and must be the same on all ranks.
Result<Call> uneven_call(const Caller& caller,
                         collectives::Collective collective,
                         ConstBuffer input,
                         Buffer output,
                         std::span<const std::uint64_t> counts,
                         ReduceOp op);
Result<Call> all_to_all_v_call(const Caller& caller,
                               ConstBuffer input,
                               std::span<const std::uint64_t> send_counts,
                               Buffer output,
                               std::span<const std::uint64_t> recv_counts);
/// check_send() checks the arguments of a send, and check_recv() those of a receive. Precondition:
/// find_memory() has been called for the buffer.
Status check_send(const Caller& caller, const ConstBuffer& buffer, std::uint32_t to);
Status check_recv(const Caller& caller, const Buffer& buffer, std::optional<std::uint32_t> from);
Result<Call> send_call(const Caller& caller,
                       ConstBuffer buffer,
                       std::uint32_t to,
                       std::uint32_t tag);
Result<Call> recv_call(const Caller& caller,
                       Buffer buffer,
                       std::optional<std::uint32_t> from,
                       std::uint32_t tag);
/// Puts a call on a stream: the call begins after the earlier work on the stream, and if
/// `holds_stream`, later work on the stream waits for the call. Fails if a buffer is neither in the
/// memory of the stream's device nor in pinned memory, or if the job has no such device.
Status put_on_stream(Call& call, const Caller& caller, const Stream& stream, bool holds_stream);
/// set_send() and set_recv() fill in a new call from arguments that have been checked.
void set_send(Call& call, const ConstBuffer& buffer, std::uint32_t to, std::uint32_t tag) noexcept;
void set_recv(Call& call,
              const Buffer& buffer,
              std::optional<std::uint32_t> from,
              std::uint32_t tag) noexcept;

/// The record of a collective call, from which fingerprints and verdicts are made. Its label and
/// its number are not set yet (CallHistory::add()).
CallRecord record_of(const Call& call) noexcept;

}  // namespace xylem::runtime
