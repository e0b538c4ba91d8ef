// SPDX-License-Identifier: Apache-2.0
//
// Calls: what users ask for, checked and put in the engine's terms. Every rule of communicator.h
// that one rank can check is checked here; what only all ranks together can see is the watch's.
#pragma once

#include "compute_devices.h"
#include "operation.h"
#include "xylem/base/status.h"
#include "xylem/runtime/types.h"

#include <cstdint>
#include <span>

namespace xylem::runtime {

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

/// The arguments with which a call was right, but for the addresses: what is like them needs no
/// other check than that.
class KnownArguments {
 public:
  /// Those of an even call that was made at `caller`.
  KnownArguments(const Caller& caller, const Call& call);

  /// Whether these are so, and lie beside or upon each other as they may. Where not, they may be
  /// right all the same.
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
Result<Call> send_call(const Caller& caller,
                       ConstBuffer buffer,
                       std::uint32_t to,
                       std::uint32_t tag);
Result<Call> recv_call(const Caller& caller,
                       Buffer buffer,
                       std::optional<std::uint32_t> from,
                       std::uint32_t tag);

}  // namespace xylem::runtime
