// SPDX-License-Identifier: Apache-2.0
//
// Dissemination barrier: in round k every rank signals the rank 2^k after it and waits for the rank
// 2^k before it. After ceil(log2 n) rounds every rank has received a signal, directly or through
// other ranks, from every other rank (Hensgen, Finkel, Manber: "Two algorithms for barrier
// synchronization", 1988). The distances differ modulo n, so a rank signals each peer at most once.
#include "planners/registry.h"
#include "xylem/collectives/builder.h"

namespace xylem::collectives {
namespace {

constexpr std::string_view kName = "dissemination";

Schedule barrier(const Shape& shape, std::uint32_t rank) {
  const std::uint32_t n = shape.ranks;
  Builder plan(kName, shape, rank);
  StepId received = kNone;
  for (std::uint32_t distance = 1; distance < n; distance *= 2) {
    const StepId sent = plan.signal((rank + distance) % n);
    if (received != kNone) plan.after(sent, received);
    received = plan.wait((rank + n - distance) % n, 1);
    plan.after(received, sent);
  }
  return std::move(plan).take();
}

constexpr Planner kPlanners[] = {
    {kName, Collective::barrier, "Signals at doubling distance: ceil(log2 n) rounds.", barrier},
};

}  // namespace

std::span<const Planner> dissemination_planners() noexcept { return kPlanners; }

}  // namespace xylem::collectives
