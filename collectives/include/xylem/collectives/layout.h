// SPDX-License-Identifier: Apache-2.0
//
// Layout: chunks bound to bytes, at launch. It says where in its buffer each chunk of one rank's
// schedule lies.
#pragma once

#include "xylem/collectives/schedule.h"

#include <cstdint>
#include <span>
#include <vector>

namespace xylem::collectives {

/// A range of bytes of a buffer.
struct Extent {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;

  friend bool operator==(const Extent&, const Extent&) = default;
};

/// Elements of a call. With n ranks, `count` is the size of
///   all_reduce, reduce, broadcast: the buffer; all_gather, gather: one rank's input;
///   reduce_scatter, scatter: one rank's output; all_to_all: what one rank sends to one other.
/// Uneven calls give vectors of n instead: `input_counts` and `output_counts` are the elements of
/// each input and output chunk of this rank (all_gather_v, gather: `output_counts`, alike on all
/// ranks; reduce_scatter_v, scatter: `input_counts`, alike on all ranks; all_to_all_v: both,
/// local).
struct Counts {
  std::uint64_t count = 0;
  std::span<const std::uint64_t> input_counts{};
  std::span<const std::uint64_t> output_counts{};
  std::uint32_t element_bytes = 1;
};

/// The parts of all_reduce, reduce and broadcast begin on multiples of this many bytes, so that no
/// two ranks reduce within one cache line; the last parts of a small buffer are empty.
inline constexpr std::uint64_t kPartAlignment = 64;

class Layout {
 public:
  /// Chunks of an operand are consecutive and adjacent in every buffer.
  Layout(const Schedule& schedule, const Counts& counts);

  /// Bytes of `chunk_count` chunks from `chunk` on.
  Extent extent(Buffer buffer, std::uint32_t chunk, std::uint32_t chunk_count) const noexcept;
  /// Size of a whole buffer.
  std::uint64_t bytes(Buffer buffer) const noexcept;

 private:
  std::vector<std::uint64_t> starts_[3];  // chunks + 1 each
};

}  // namespace xylem::collectives
