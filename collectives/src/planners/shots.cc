// SPDX-License-Identifier: Apache-2.0
//
// One shot: every rank receives every input and sums all of them itself. Two shots: every rank sums
// one part and sends it to all others, that is, a reduce-scatter and an all-gather between all
// pairs. Both suit small numbers of ranks with links between all pairs, where latency matters most.
#include "planners/registry.h"
#include "xylem/collectives/builder.h"

#include <vector>

namespace xylem::collectives {
namespace {

Schedule one_shot(const Shape& shape, std::uint32_t rank) {
  const std::uint32_t n = shape.ranks;
  Builder plan("one_shot", shape, rank, 1);
  // sources[r] is the chunk with the contribution of rank r, so all ranks evaluate the same
  // expression. This rank's own contribution is in its input.
  std::vector<Chunks> sources(n, input(0));
  for (std::uint32_t d = 1; d < n; ++d) {
    const std::uint32_t from = (rank + n - d) % n;
    plan.send((rank + d) % n, input(0));
    sources[from] = plan.add_scratch(0);
    plan.recv(from, sources[from]);
  }
  if (n == 1) {
    plan.copy(output(0), input(0));
  } else {
    plan.reduce(output(0), sources, true);
  }
  return std::move(plan).take();
}

Schedule two_shot(const Shape& shape, std::uint32_t rank) {
  const std::uint32_t n = shape.ranks;
  // Each shot has a channel of its own, since messages of one channel are sent in order. So a rank
  // sends the first slice of its sum as soon as the slice is ready, even if messages of the first
  // shot have not been sent yet.
  Builder plan("two_shot", shape, rank, n, n > 1 ? 2 : 1);
  if (n == 1) plan.copy(output(0), input(0));
  // As in one_shot, sources[r] is the chunk with the contribution of rank r.
  std::vector<Chunks> sources(n, input(rank));
  for (std::uint32_t d = 1; d < n; ++d) {
    const std::uint32_t to = (rank + d) % n;
    const std::uint32_t from = (rank + n - d) % n;
    plan.send(to, input(to));
    sources[from] = plan.add_scratch(rank);
    plan.recv(from, sources[from]);
  }
  if (n > 1) plan.reduce(output(rank), sources, true);
  for (std::uint32_t d = 1; d < n; ++d) {
    const std::uint32_t from = (rank + n - d) % n;
    plan.send((rank + d) % n, output(rank), 1);
    plan.recv(from, output(from), 1);
  }
  return std::move(plan).take();
}

constexpr Planner kPlanners[] = {
    {.name = "one_shot",
     .collective = Collective::all_reduce,
     .summary = "Everyone sends everything to everyone and sums in one pass: one latency.",
     .plan = one_shot,
     .swaps_data = true},
    {"two_shot", Collective::all_reduce,
     "Everyone sums one part in one pass and sends it to everyone: two latencies.", two_shot},
};

}  // namespace

std::span<const Planner> shots_planners() noexcept { return kPlanners; }

}  // namespace xylem::collectives
