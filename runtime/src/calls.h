// SPDX-License-Identifier: Apache-2.0
//
// Calls: what users ask for, checked and put in the engine's terms. Every rule of communicator.h
// that one rank can check is checked here; what only all ranks together can see is the watch's.
#pragma once

#include "compute_devices.h"
#include "situation.h"
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

/// What the user asked for; checked.
struct Call {
  CallKind kind = CallKind::collective;
  collectives::Collective collective = collectives::Collective::barrier;
  DataType type = DataType::uint8;
  ReduceOp op{};
  std::uint32_t root = 0;   ///< Root of a collective.
  std::uint64_t count = 0;  ///< As collectives::Counts; point to point: elements.
  bool uneven = false;
  std::vector<std::uint64_t> input_counts, output_counts;  ///< Uneven calls only.
  const void* input = nullptr;
  void* output = nullptr;
  Memory memory{};                          ///< Where both of them are.
  std::uint32_t peer = collectives::kNone;  ///< Point to point; kNone receives from any.
  std::uint32_t tag = 0;
  /// Memory of our own that the call uses, where it does: it lives as long as the operation, which
  /// outlives the call's Work if a transport does not let go of it.
  std::shared_ptr<const void> owned;
};

/// Where the caller stands.
struct Caller {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  const ComputeDevices* devices = nullptr;  ///< Whose memory buffers may be in; null: none.
};

/// Whether `type` is one, and memory can hold so much of it.
Status check_elements(const char* which, std::uint64_t count, DataType type);

/// What a collective with equal counts is asked for with. `op` only where it reduces, `root` only
/// where it has one.
struct EvenArguments {
  collectives::Collective collective = collectives::Collective::barrier;
  ConstBuffer input;
  Buffer output;
  ReduceOp op;
  std::uint32_t root = 0;
};
Result<Call> even_call(const Caller& caller, const EvenArguments& arguments);

/// The arguments of a call that was right, without their addresses. A call whose arguments match
/// them needs no other check.
class KnownArguments {
 public:
  /// Those of an even call that was made at `caller`.
  KnownArguments(const Caller& caller, const Call& call);

  /// Whether these arguments are the same, and their buffers lie apart or in place as they may.
  /// Arguments that do not match may be right, too.
  bool match(const EvenArguments& arguments) const noexcept;

 private:
  collectives::Collective collective_;
  DataType type_;
  RedOp op_;
  std::uint32_t root_;
  bool has_input_, has_output_;
  std::uint64_t input_count_, output_count_;
  std::uint64_t input_bytes_, output_bytes_;
  std::uint64_t in_place_offset_;  ///< From the start of the larger buffer, in bytes.
};
/// Fills in a new call, of which a record tells all but the addresses; these arguments are right.
void set_even(Call& call, const CallRecord& record, const EvenArguments& arguments) noexcept;

/// all_gather_v and reduce_scatter_v: `counts` has one entry per rank, alike on all ranks.
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
Status check_send(const Caller& caller, const ConstBuffer& buffer, std::uint32_t to);
Status check_recv(const Caller& caller, const Buffer& buffer, std::optional<std::uint32_t> from);
/// These fill in a new call, from arguments that are right.
void set_send(Call& call, const ConstBuffer& buffer, std::uint32_t to, std::uint32_t tag) noexcept;
void set_recv(Call& call,
              const Buffer& buffer,
              std::optional<std::uint32_t> from,
              std::uint32_t tag) noexcept;

/// What verdicts and fingerprints say of a collective. It has no number yet.
CallRecord record_of(const Call& call) noexcept;

}  // namespace xylem::runtime
