// SPDX-License-Identifier: Apache-2.0
//
// Layout: assigns a range of bytes to each chunk of one rank's schedule, when a call is launched.
#pragma once

#include "xylem/collectives/schedule.h"

#include <cstdint>
#include <span>
#include <vector>

namespace xylem::collectives {

/// A range of bytes in a buffer.
struct Extent {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;

  friend bool operator==(const Extent&, const Extent&) = default;
};

/// The numbers of elements in a call. With n ranks, `count` is
///   all_reduce, reduce, broadcast: the size of the buffer;
///   all_gather, gather: the size of one rank's input;
///   reduce_scatter, scatter: the size of one rank's output;
///   all_to_all: the size of what one rank sends to one other rank.
/// For uneven calls, `input_counts` and `output_counts` have n entries: the elements of each input
/// and output chunk of this rank. all_gather_v and gather use `output_counts`, equal on all ranks;
/// reduce_scatter_v and scatter use `input_counts`, equal on all ranks; all_to_all_v uses both, and
/// they may differ between ranks.
struct Counts {
  std::uint64_t count = 0;
  std::span<const std::uint64_t> input_counts{};
  std::span<const std::uint64_t> output_counts{};
  std::uint32_t element_bytes = 1;
};

/// The parts of all_reduce, reduce and broadcast begin at multiples of this many bytes, so that no
/// two ranks reduce into the same cache line. If the buffer has fewer cache lines than parts, the
/// last parts are empty.
inline constexpr std::uint64_t kPartAlignment = 64;

class Layout {
 public:
  /// Computes where each chunk begins. The chunks of a buffer lie in the order of their numbers,
  /// without gaps, so the chunks of an operand are one range of bytes.
  Layout(const Schedule& schedule, const Counts& counts);

  /// The range of the `chunk_count` chunks that begin with `chunk`.
  Extent extent(Buffer buffer, std::uint32_t chunk, std::uint32_t chunk_count) const noexcept;
  /// The size of a whole buffer.
  std::uint64_t bytes(Buffer buffer) const noexcept;

 private:
  std::vector<std::uint64_t> starts_[3];  // chunks + 1 entries each
};

}  // namespace xylem::collectives
