// SPDX-License-Identifier: Apache-2.0
//
// Pairwise exchange: n − 1 rounds. In round t every rank sends to the rank t after it and receives
// from the rank t before it. With one exchange at a time, no port is overloaded (Thakur,
// Rabenseifner, Gropp: "Optimization of collective communication operations in MPICH", 2005,
// section 4.2).
#include "planners/registry.h"
#include "xylem/collectives/builder.h"

namespace xylem::collectives {
namespace {

constexpr std::string_view kName = "pairwise";

Schedule all_to_all(const Shape& shape, std::uint32_t rank) {
  const std::uint32_t n = shape.ranks;
  Builder plan(kName, shape, rank);
  StepId received = kNone;
  for (std::uint32_t round = 1; round < n; ++round) {
    const std::uint32_t to = (rank + round) % n;
    const std::uint32_t from = (rank + n - round) % n;
    const StepId sent = plan.send(to, input(to));
    if (received != kNone) plan.after(sent, received);
    received = plan.recv(from, output(from));
  }
  plan.copy(output(rank), input(rank));
  return std::move(plan).take();
}

// Every rank does the same with the ranks at each distance.
Symmetry turns(const Shape& shape) {
  return Symmetry({{.radix = shape.ranks, .rank_stride = 1, .block_stride = 1}});
}

constexpr Planner kPlanners[] = {
    {kName, Collective::all_to_all,
     "One exchange at a time with each rank in turn: no congestion, for long messages.", all_to_all,
     turns, /*takes_hosts=*/false, /*moves_ranges=*/false, /*swaps_data=*/false,
     /*falls_out_of_step=*/true},
};

}  // namespace

std::span<const Planner> pairwise_planners() noexcept { return kPlanners; }

}  // namespace xylem::collectives
