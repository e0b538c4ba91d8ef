// SPDX-License-Identifier: Apache-2.0
//
// Computes the sizes of blocks, and from them the positions of chunks.
#include "xylem/collectives/layout.h"

#include "xylem/base/check.h"

#include <algorithm>
#include <numeric>

namespace xylem::collectives {
namespace {

// The size of part number `part` of a buffer with counts.count elements. The buffer is divided into
// lines. A line is the least multiple of kPartAlignment bytes that contains whole elements only;
// the last line may be shorter. All parts get the same number of lines, and if some lines remain,
// each of the first parts gets one of them.
std::uint64_t part_bytes(const Counts& counts, std::uint32_t parts, std::uint32_t part) {
  const std::uint64_t total = counts.count * counts.element_bytes;
  const std::uint64_t line = std::lcm<std::uint64_t>(kPartAlignment, counts.element_bytes);
  const std::uint64_t lines = total / line + (total % line != 0 ? 1 : 0);
  const std::uint64_t each = lines / parts;
  const std::uint64_t longer = lines % parts;
  const auto start = [&](std::uint64_t index) {
    return std::min(total, (index * each + std::min(index, longer)) * line);
  };
  return start(part + 1) - start(part);
}

std::uint64_t elements(std::span<const std::uint64_t> uneven,
                       std::uint32_t index,
                       std::uint64_t even) {
  return uneven.empty() ? even : uneven[index];
}

std::uint64_t all_to_all_bytes(const Schedule& schedule,
                               const Counts& counts,
                               std::uint32_t block) {
  const std::uint32_t from = block / schedule.shape.ranks;
  const std::uint32_t to = block % schedule.shape.ranks;
  const bool even = counts.input_counts.empty() && counts.output_counts.empty();
  XYLEM_CHECK(even || from == schedule.rank || to == schedule.rank, from, to, schedule.rank);
  const auto uneven = from == schedule.rank ? counts.input_counts : counts.output_counts;
  return elements(uneven, from == schedule.rank ? to : from, counts.count) * counts.element_bytes;
}

std::uint64_t block_bytes(const Schedule& schedule, const Counts& counts, std::uint32_t block) {
  switch (schedule.shape.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::broadcast: return part_bytes(counts, schedule.blocks, block);
    case Collective::all_gather:
    case Collective::gather:
      return elements(counts.output_counts, block, counts.count) * counts.element_bytes;
    case Collective::reduce_scatter:
    case Collective::scatter:
      return elements(counts.input_counts, block, counts.count) * counts.element_bytes;
    case Collective::all_to_all: return all_to_all_bytes(schedule, counts, block);
    case Collective::barrier: return 0;
  }
  return 0;
}

}  // namespace

Layout::Layout(const Schedule& schedule, const Counts& counts) {
  const std::uint32_t ranks = schedule.shape.ranks;
  XYLEM_CHECK(counts.input_counts.empty() || counts.input_counts.size() == ranks, ranks);
  XYLEM_CHECK(counts.output_counts.empty() || counts.output_counts.size() == ranks, ranks);
  XYLEM_CHECK(counts.element_bytes > 0);
  for (const Buffer buffer : {Buffer::input, Buffer::output, Buffer::scratch}) {
    auto& starts = starts_[static_cast<int>(buffer)];
    const std::uint32_t chunks = chunk_count(schedule, schedule.rank, buffer);
    starts.reserve(chunks + 1);
    starts.push_back(0);
    for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
      const std::uint32_t block = block_of(schedule, {schedule.rank, chunk, buffer});
      starts.push_back(starts.back() + block_bytes(schedule, counts, block));
    }
  }
}

Extent Layout::extent(Buffer buffer,
                      std::uint32_t chunk,
                      std::uint32_t chunk_count) const noexcept {
  const auto& starts = starts_[static_cast<int>(buffer)];
  XYLEM_CHECK(chunk + chunk_count < starts.size(), chunk, chunk_count, starts.size());
  return {starts[chunk], starts[chunk + chunk_count] - starts[chunk]};
}

std::uint64_t Layout::bytes(Buffer buffer) const noexcept {
  return starts_[static_cast<int>(buffer)].back();
}

}  // namespace xylem::collectives
