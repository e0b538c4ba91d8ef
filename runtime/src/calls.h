// SPDX-License-Identifier: Apache-2.0
//
// Calls: what users ask for, checked and put in the engine's terms. Every rule of communicator.h
// that one rank can check is checked here; what only all ranks together can see is the watch's.
#pragma once

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
};

/// Whether `type` is one, and memory can hold so much of it.
Status check_elements(const char* which, std::uint64_t count, DataType type);

/// A collective with equal counts. `op` only where the collective reduces, `root` only where it has
/// one.
Result<Call> even_call(const Caller& caller,
                       collectives::Collective collective,
                       ConstBuffer input,
                       Buffer output,
                       ReduceOp op,
                       std::uint32_t root);
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
