// SPDX-License-Identifier: Apache-2.0
//
// Recursive doubling: in round k each rank exchanges its whole sum with the rank that differs in
// bit k, so a sum covers twice as many ranks after each round. The number of rounds is minimal, but
// every round carries the whole buffer (Thakur, Rabenseifner, Gropp: "Optimization of collective
// communication operations in MPICH", 2005, section 4.5). For a number of ranks that is no power of
// two, see Fold (fold.h).
#include "planners/fold.h"
#include "planners/registry.h"
#include "xylem/collectives/builder.h"

namespace xylem::collectives {
namespace {

constexpr std::string_view kName = "recursive_doubling";

Schedule all_reduce(const Shape& shape, std::uint32_t rank) {
  const Fold fold(shape.ranks, rank);
  Builder plan(kName, shape, rank, 1);
  if (shape.ranks == 1) plan.copy(output(0), input(0));
  if (fold.is_folded_away()) {
    plan.send(rank + 1, input(0));
    plan.recv(rank + 1, output(0));
    return std::move(plan).take();
  }
  Chunks sum = input(0);
  if (fold.receives_partner_data()) {
    const Chunks theirs = plan.add_scratch(0);
    plan.recv(rank - 1, theirs);
    plan.reduce(output(0), {theirs, input(0)});
    sum = output(0);
  }
  for (std::uint32_t bit = 1; bit < fold.places(); bit *= 2) {
    const std::uint32_t partner = fold.rank_at(fold.place() ^ bit);
    const Chunks theirs = plan.add_scratch(0);
    plan.send(partner, sum);
    plan.recv(partner, theirs);
    // Both partners evaluate the same expression: the sum of the lower ranks comes first.
    const bool last = 2 * bit == fold.places();
    if ((fold.place() & bit) == 0) {
      plan.reduce(output(0), {sum, theirs}, last);
    } else {
      plan.reduce(output(0), {theirs, sum}, last);
    }
    sum = output(0);
  }
  if (fold.receives_partner_data()) plan.send(rank - 1, output(0));
  return std::move(plan).take();
}

constexpr Planner kPlanners[] = {
    {.name = kName,
     .collective = Collective::all_reduce,
     .summary =
         "Exchanges of the whole buffer at doubling distance: fewest rounds, for short messages.",
     .plan = all_reduce,
     .swaps_data = true},
};

}  // namespace

std::span<const Planner> recursive_doubling_planners() noexcept { return kPlanners; }

}  // namespace xylem::collectives
