// SPDX-License-Identifier: Apache-2.0
//
// Rabenseifner: reduce-scatter by recursive halving, then all-gather by recursive doubling. The
// number of rounds is logarithmic, and the number of bytes is nearly that of a ring (Rabenseifner:
// "Optimization of collective reduction operations", 2004). There is one block for each place of
// the Fold (fold.h); after the reduce-scatter, place p has the sum of block p.
#include "planners/fold.h"
#include "planners/registry.h"
#include "xylem/collectives/builder.h"

namespace xylem::collectives {
namespace {

constexpr std::string_view kName = "rabenseifner";

Schedule all_reduce(const Shape& shape, std::uint32_t rank) {
  const Fold fold(shape.ranks, rank);
  const std::uint32_t blocks = fold.places();
  Builder plan(kName, shape, rank, blocks);
  if (shape.ranks == 1) plan.copy(output(0), input(0));
  if (fold.is_folded_away()) {
    plan.send(rank + 1, input(0, blocks));
    plan.recv(rank + 1, output(0, blocks));
    return std::move(plan).take();
  }
  auto sum = input;  // The buffer with this rank's partial sums.
  if (fold.receives_partner_data()) {
    const Chunks theirs = plan.add_scratch(0, blocks);
    plan.recv(rank - 1, theirs);
    plan.reduce(output(0, blocks), {theirs, input(0, blocks)});
    sum = output;
  }
  const auto partner = [&](std::uint32_t bit) { return fold.rank_at(fold.place() ^ bit); };
  const auto kept = [&](std::uint32_t bit) { return fold.place() / bit * bit; };
  // Each exchange halves the range of blocks for which this rank is responsible, to [kept(bit),
  // kept(bit) + bit).
  for (std::uint32_t bit = blocks / 2; bit > 0; bit /= 2) {
    const Chunks theirs = plan.add_scratch(kept(bit), bit);
    plan.send(partner(bit), sum(kept(bit) ^ bit, bit));
    plan.recv(partner(bit), theirs);
    const Chunks mine = sum(kept(bit), bit);
    const Chunks target = output(kept(bit), bit);
    if ((fold.place() & bit) == 0) {
      plan.reduce(target, {mine, theirs}, bit == 1);
    } else {
      plan.reduce(target, {theirs, mine}, bit == 1);
    }
    sum = output;
  }
  for (std::uint32_t bit = 1; bit < blocks; bit *= 2) {
    plan.send(partner(bit), output(kept(bit), bit));
    plan.recv(partner(bit), output(kept(bit) ^ bit, bit));
  }
  if (fold.receives_partner_data()) plan.send(rank - 1, output(0, blocks));
  return std::move(plan).take();
}

constexpr Planner kPlanners[] = {
    {kName, Collective::all_reduce,
     "Recursive halving then doubling: logarithmic rounds with nearly the fewest bytes.",
     all_reduce},
};

}  // namespace

std::span<const Planner> rabenseifner_planners() noexcept { return kPlanners; }

}  // namespace xylem::collectives
