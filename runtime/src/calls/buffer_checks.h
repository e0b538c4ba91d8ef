// SPDX-License-Identifier: Apache-2.0
//
// Checks the rules of communicator.h about the arguments of a call: its buffers, counts and ranks.
// Each function checks one rule. If an argument breaks the rule, it fails with `invalid_argument`.
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

/// A Status with the code `invalid_argument` and this message.
Status bad(std::string message);
/// "cuda memory of device 1", "host memory".
std::string describe(const Memory& memory);

/// Fails if `type` is not a DataType, or if `count` elements of this type are more than memory can
/// hold. `which` is the name of the argument in error messages, here and below.
Status check_elements(const char* which, std::uint64_t count, DataType type);

/// Checks the type, count, address and memory of one buffer of the user. Fails with `unsupported`
/// if this job cannot use the memory of the buffer.
Status check_buffer(const char* which, const ConstBuffer& buffer, const Caller& caller);
/// A quick check for the buffer of a send or receive. A buffer that passes needs no other check.
/// For a buffer that fails, check_buffer() must decide whether it is valid.
bool is_plain(const ConstBuffer& buffer) noexcept;
Status check_rank(const char* which, std::uint32_t rank, const Caller& caller);

/// What a call reads and writes at this rank. Counts and offsets are in elements.
struct Needs {
  bool input = true, output = true;
  std::uint64_t input_count = 0, output_count = 0;
  std::uint64_t in_place_offset =
      0;  ///< If the call is in place: the offset of the smaller buffer in the larger one.
  bool may_be_in_place = true;
};

/// Runs check_buffer() for each buffer that the call uses at this rank.
Status check_buffers(const Needs& needs,
                     const ConstBuffer& input,
                     const Buffer& output,
                     const Caller& caller);
/// Checks that the two buffers have the counts in `needs`, equal types and the same memory, and
/// that they overlap only as an in-place call allows. Precondition: they have passed
/// check_buffers().
Status check_pair(collectives::Collective collective,
                  const Needs& needs,
                  const ConstBuffer& input,
                  const Buffer& output);

/// The number of elements of `ranks` parts with `count` elements each. Fails if memory cannot hold
/// so many elements.
Result<std::uint64_t> whole_of(collectives::Collective collective,
                               std::uint64_t count,
                               DataType type,
                               std::uint32_t ranks);
/// The number of elements of one rank's part of `whole` elements. Fails if they cannot be divided
/// equally.
Result<std::uint64_t> share_of(collectives::Collective collective,
                               std::uint64_t whole,
                               std::uint32_t ranks);
/// The sum of the counts of all ranks. Fails if memory cannot hold so many elements. `type` is the
/// type of a buffer that has passed check_buffers().
Result<std::uint64_t> sum_of(const char* which,
                             std::span<const std::uint64_t> counts,
                             DataType type);
/// Fails if there is not exactly one count for each rank.
Status check_counts(const char* which, std::span<const std::uint64_t> counts, const Caller& caller);

}  // namespace xylem::runtime
