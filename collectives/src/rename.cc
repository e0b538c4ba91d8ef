// SPDX-License-Identifier: Apache-2.0
#include "xylem/collectives/rename.h"

#include "xylem/base/check.h"
#include "xylem/collectives/symmetry.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

namespace xylem::collectives {
namespace {

// Whether the chunks of `buffer` hold the blocks of ranks 0, 1, …, so that a chunk is renamed like
// a rank.
bool has_chunk_of_each_rank(Collective collective, Buffer buffer) {
  switch (collective) {
    case Collective::all_gather:
    case Collective::gather: return buffer == Buffer::output;
    case Collective::reduce_scatter:
    case Collective::scatter: return buffer == Buffer::input;
    case Collective::all_to_all: return buffer != Buffer::scratch;
    default: return false;
  }
}

std::uint32_t renamed_block(const Shape& shape,
                            std::uint32_t block,
                            std::span<const std::uint32_t> order) {
  switch (shape.collective) {
    case Collective::all_gather:
    case Collective::gather:
    case Collective::reduce_scatter:
    case Collective::scatter: return order[block];
    case Collective::all_to_all:
      return order[block / shape.ranks] * shape.ranks + order[block % shape.ranks];
    default: return block;
  }
}

}  // namespace

Placement placement(std::span<const std::uint32_t> host, std::uint32_t ranks, std::uint32_t root) {
  Placement result;
  if (host.empty()) {
    result.per_host = ranks;
    return result;
  }
  // The number of each host in the order of first ranks, and its size.
  std::map<std::uint32_t, std::uint32_t> numbers;
  std::vector<std::uint32_t> number_of(ranks), sizes, order(ranks);
  for (std::uint32_t place = 0; place < ranks; ++place) {
    const std::uint32_t rank = order[place] = (root + place) % ranks;
    const auto next = static_cast<std::uint32_t>(numbers.size());
    const auto [known, is_new] = numbers.try_emplace(host[rank], next);
    if (is_new) sizes.push_back(0);
    number_of[rank] = known->second;
    ++sizes[known->second];
  }
  std::ranges::stable_sort(order, {}, [&](std::uint32_t rank) { return number_of[rank]; });
  if (!std::ranges::is_sorted(order)) result.order = std::move(order);
  if (std::ranges::adjacent_find(sizes, std::not_equal_to()) == sizes.end()) {
    result.per_host = sizes.front();
  } else {
    result.host_sizes = std::move(sizes);
  }
  return result;
}

Schedule renamed(Schedule schedule, std::span<const std::uint32_t> order) {
  if (order.empty()) return schedule;
  const Shape& shape = schedule.shape;
  for (Step& step : schedule.steps) {
    if (step.peer != kNone) step.peer = order[step.peer];
    XYLEM_CHECK(step.chunk_count <= 1 || has_free_parts(shape.collective), step.chunk_count);
  }
  for (Operand& operand : schedule.operands) {
    XYLEM_CHECK(operand.rank == schedule.rank, operand.rank);
    operand.rank = order[operand.rank];
    if (has_chunk_of_each_rank(shape.collective, operand.buffer)) {
      operand.chunk = order[operand.chunk];
    }
  }
  for (std::uint32_t& block : schedule.scratch) block = renamed_block(shape, block, order);
  schedule.rank = order[schedule.rank];
  if (has_root(shape.collective)) schedule.shape.root = order[shape.root];
  schedule.shape.per_host = 1;  // The ranks of a host need not be consecutive any more.
  schedule.shape.host_sizes.clear();
  return schedule;
}

}  // namespace xylem::collectives
