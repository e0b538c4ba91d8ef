// SPDX-License-Identifier: Apache-2.0
//
// Bruck: in each round a rank sends all blocks that it has, so their number doubles; ceil(log2 n)
// rounds for any number of ranks (Bruck, Ho, Kipnis, Upfal, Weathersby: "Efficient algorithms for
// all-to-all communications in multiport message-passing systems", 1997). Blocks are received
// directly at their final places, so no rotation is needed at the end.
#include "planners/cyclic.h"
#include "planners/registry.h"
#include "xylem/collectives/builder.h"

#include <algorithm>

namespace xylem::collectives {
namespace {

constexpr std::string_view kName = "bruck";

Schedule all_gather(const Shape& shape, std::uint32_t rank) {
  const std::uint32_t n = shape.ranks;
  Builder plan(kName, shape, rank);
  if (n == 1) plan.copy(output(0), input(0));
  // Before each round this rank holds blocks rank, rank + 1, …, rank + held − 1 (mod n).
  for (std::uint32_t held = 1; held < n; held *= 2) {
    const std::uint32_t moved = std::min(held, n - held);
    const std::uint32_t to = (rank + n - held) % n;
    const std::uint32_t from = (rank + held) % n;
    for_each_piece(rank, moved, n, [&](std::uint32_t, std::uint32_t block, std::uint32_t count) {
      plan.send(to, held == 1 ? input(0) : output(block, count));
    });
    if (held == 1) plan.copy(output(rank), input(0));  // While the first message is in flight.
    for_each_piece(from, moved, n, [&](std::uint32_t, std::uint32_t block, std::uint32_t count) {
      plan.recv(from, output(block, count));
    });
  }
  return std::move(plan).take();
}

constexpr Planner kPlanners[] = {
    {.name = kName,
     .collective = Collective::all_gather,
     .summary = "Blocks double in each of ceil(log2 n) rounds: fewest rounds, for short messages.",
     .plan = all_gather,
     .moves_ranges = true},
};

}  // namespace

std::span<const Planner> bruck_planners() noexcept { return kPlanners; }

}  // namespace xylem::collectives
