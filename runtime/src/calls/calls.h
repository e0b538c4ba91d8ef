// SPDX-License-Identifier: Apache-2.0
//
// Calls: what users ask for, checked and put into the engine's terms. Every rule of communicator.h
// that one rank can check by itself is checked here. The watch finds disagreements between ranks.
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

/// What the user asked for, with checked arguments.
struct Call {
  CallKind kind = CallKind::collective;
  collectives::Collective collective = collectives::Collective::barrier;
  DataType type = DataType::uint8;
  ReduceOp op{};
  std::uint32_t root = 0;  ///< Root of a collective.
  /// The count of collectives::Counts or, point to point, the number of elements of the message.
  std::uint64_t count = 0;
  /// Set for uneven calls only, whose ranks have shares of different sizes.
  std::vector<std::uint64_t> input_counts, output_counts;
  const void* input = nullptr;
  void* output = nullptr;
  Memory memory{};  ///< The memory in which both buffers are.
  /// The stream after whose earlier work the call begins. Empty: the call begins at once.
  std::optional<Stream> stream;
  /// Whether what the stream is given after the call waits for the call.
  bool holds_stream = true;
  /// The devices carry out the call by themselves, in the order of the stream (Group::bind()).
  bool on_mesh = false;
  /// The peer of a point-to-point call. kNone: receive from any rank.
  std::uint32_t peer = collectives::kNone;
  std::uint32_t tag = 0;
  std::uint64_t label = 0;  ///< Of a collective: Communicator::labelled().
  /// If the call uses memory of the runtime itself, this keeps that memory alive as long as the
  /// operation. The operation may outlive the call's Work, if a transport still uses the memory.
  std::shared_ptr<const void> owned;

  bool is_uneven() const noexcept { return !input_counts.empty() || !output_counts.empty(); }
};

/// The arguments of a collective with equal counts on all ranks. `op` is used only by collectives
/// that reduce, `root` only by those that have a root.
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
  /// `call` is an even call that `caller` has made.
  KnownArguments(const Caller& caller, const Call& call);

  /// True if the arguments are the same, and the buffers overlap only as in-place calls allow. It
  /// must be known where the buffers are (find_memory()). Arguments that do not match may still be
  /// right: then even_call() checks them.
  bool match(const EvenArguments& arguments) const noexcept;

 private:
  collectives::Collective collective_;
  DataType type_;
  RedOp op_;
  std::uint32_t root_;
  bool has_input_, has_output_;
  std::uint64_t input_count_, output_count_;
  std::uint64_t input_bytes_, output_bytes_;
  /// For an in-place call, the distance from the start of the larger buffer to the smaller one.
  std::uint64_t in_place_offset_;
};
/// Fills in a new call from the record of its plan, and from arguments that have been checked.
void set_even(Call& call, const CallRecord& record, const EvenArguments& arguments) noexcept;

/// The call of an all_gather_v or a reduce_scatter_v. `counts` has one entry for each rank, and is
/// the same on all ranks.
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
/// It must be known where the buffer is (find_memory()).
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
/// Lets a call begin in the order of a stream, which waits for the call if `holds_stream`. Fails if
/// its buffers are neither in the memory of the stream's device nor in pinned memory, or if there
/// is no such device.
Status put_on_stream(Call& call, const Caller& caller, const Stream& stream, bool holds_stream);
/// These fill in a new call from arguments that have been checked.
void set_send(Call& call, const ConstBuffer& buffer, std::uint32_t to, std::uint32_t tag) noexcept;
void set_recv(Call& call,
              const Buffer& buffer,
              std::optional<std::uint32_t> from,
              std::uint32_t tag) noexcept;

/// What verdicts and fingerprints use of a collective call, without its label. The number of the
/// call is not set yet.
CallRecord record_of(const Call& call) noexcept;

}  // namespace xylem::runtime
