// SPDX-License-Identifier: Apache-2.0
//
// The rules of communicator.h about the arguments of a call: its buffers, counts and ranks. Each
// function checks one rule, and fails with `invalid_argument` if it is broken.
#pragma once

#include "calls/caller.h"
#include "xylem/base/memory.h"
#include "xylem/base/status.h"
#include "xylem/collectives/schedule.h"
#include "xylem/runtime/types.h"

#include <cstdint>
#include <span>
#include <string>

namespace xylem::runtime {

/// The error `invalid_argument`.
Status bad(std::string message);
/// "cuda memory of device 1", "host memory".
std::string describe(const Memory& memory);

/// Fails if `type` is not a data type, or if `count` elements of it are more than memory can hold.
Status check_elements(const char* which, std::uint64_t count, DataType type);

/// Checks one buffer of the user by itself, for reading or writing.
Status check_buffer(const char* which, const ConstBuffer& buffer, const Caller& caller);
/// A quick check that most buffers of messages pass. A buffer that passes needs no other check; a
/// buffer that does not pass may still be right.
bool is_plain(const ConstBuffer& buffer) noexcept;
Status check_rank(const char* which, std::uint32_t rank, const Caller& caller);

/// What the call reads and writes at this rank, in elements, and where the smaller buffer lies
/// within the larger one if the call is in place.
struct Needs {
  bool input = true, output = true;
  std::uint64_t input_count = 0, output_count = 0;
  std::uint64_t in_place_offset =
      0;  ///< The number of elements from the start of the larger buffer to the smaller one.
  bool may_be_in_place = true;
};

/// Checks each of the two buffers by itself, if the call uses it at this rank.
Status check_buffers(const Needs& needs,
                     const ConstBuffer& input,
                     const Buffer& output,
                     const Caller& caller);
/// Checks counts, types, memory and overlap of two buffers that have passed check_buffers().
Status check_pair(collectives::Collective collective,
                  const Needs& needs,
                  const ConstBuffer& input,
                  const Buffer& output);

/// The elements of `ranks` parts with `count` elements each.
Result<std::uint64_t> whole_of(collectives::Collective collective,
                               std::uint64_t count,
                               DataType type,
                               std::uint32_t ranks);
/// The elements of one rank's part of `whole` elements.
Result<std::uint64_t> share_of(collectives::Collective collective,
                               std::uint64_t whole,
                               std::uint32_t ranks);
/// The sum of the counts of all ranks. `type` is the type of a buffer that has passed
/// check_buffers().
Result<std::uint64_t> sum_of(const char* which,
                             std::span<const std::uint64_t> counts,
                             DataType type);
/// There must be one count for each rank.
Status check_counts(const char* which, std::span<const std::uint64_t> counts, const Caller& caller);

}  // namespace xylem::runtime
