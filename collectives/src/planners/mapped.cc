// SPDX-License-Identifier: Apache-2.0
//
// Plans for ranks that access each other's input and output buffers: every input is read once, and
// every output is written once. The steps run one after the other, in list order, without a
// progress engine.
//
// First, a rank signals that others may use its buffers, and waits for this signal from the ranks
// whose buffers it uses. It ends when all ranks that use its buffers have signalled that they have
// finished. Of each buffer of a rank, another rank uses at most one chunk.
#include "planners/phases.h"
#include "xylem/collectives/planner.h"

#include <algorithm>
#include <vector>

namespace xylem::collectives {
namespace {

constexpr std::string_view kName = "mapped";

/// `chunk`, but in the buffer of `rank`.
Chunks of_rank(std::uint32_t rank, Chunks chunk) {
  chunk.rank = rank;
  return chunk;
}

/// The same chunk of all ranks' inputs, in rank order.
std::vector<Chunks> of_all(const Shape& shape, std::uint32_t chunk) {
  std::vector<Chunks> chunks;
  chunks.reserve(shape.ranks);
  for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) {
    chunks.push_back(of_rank(rank, input(chunk)));
  }
  return chunks;
}

/// Puts this chunk of the rank's output into the outputs of all other ranks.
void put_to_all(Phases& plan, std::uint32_t chunk) {
  plan.for_others([&](std::uint32_t peer) { plan.put(peer, output(chunk), output(chunk)); });
}

/// A plan in which all ranks use buffers of all others, by the steps that `use` adds. These run
/// after all ranks have signalled that they have begun, and before any rank ends. `blocks` is
/// passed to Builder.
template <typename Use>
Schedule between_all(const Shape& shape, std::uint32_t rank, std::uint32_t blocks, Use&& use) {
  Phases plan(kName, shape, rank, blocks, 2);
  plan.signal_all(0);
  plan.wait_all(0);
  use(plan);
  plan.signal_all(1);
  plan.wait_all(1);
  return plan.take();
}

/// A plan in which only the root uses buffers of others, by the steps that `use` adds.
template <typename Use>
Schedule at_root(const Shape& shape, std::uint32_t rank, std::uint32_t blocks, Use&& use) {
  Phases plan(kName, shape, rank, blocks, 2);
  if (rank == shape.root) {
    plan.wait_all(0);
    use(plan);
    plan.signal_all(1);
  } else {
    plan.signal(shape.root, 0);
    plan.wait(shape.root, 1);
  }
  return plan.take();
}

Schedule all_reduce(const Shape& shape, std::uint32_t rank) {
  return between_all(shape, rank, shape.ranks, [&](Phases& plan) {
    plan.reduce(output(rank), of_all(shape, rank));
    put_to_all(plan, rank);
  });
}

Schedule broadcast(const Shape& shape, std::uint32_t rank) {
  return between_all(shape, rank, shape.ranks, [&](Phases& plan) {
    plan.copy(output(rank), of_rank(shape.root, input(rank)));
    put_to_all(plan, rank);
  });
}

Schedule all_gather(const Shape& shape, std::uint32_t rank) {
  return between_all(shape, rank, 0, [&](Phases& plan) {
    plan.copy(output(rank), input(0));
    put_to_all(plan, rank);
  });
}

Schedule reduce_scatter(const Shape& shape, std::uint32_t rank) {
  return between_all(shape, rank, 0,
                     [&](Phases& plan) { plan.reduce(output(0), of_all(shape, rank)); });
}

Schedule reduce(const Shape& shape, std::uint32_t rank) {
  return at_root(shape, rank, 1, [&](Phases& plan) { plan.reduce(output(0), of_all(shape, 0)); });
}

Schedule gather(const Shape& shape, std::uint32_t rank) {
  return at_root(shape, rank, 0, [&](Phases& plan) {
    plan.copy(output(rank), input(0));
    plan.for_others([&](std::uint32_t peer) { plan.copy(output(peer), of_rank(peer, input(0))); });
  });
}

Schedule scatter(const Shape& shape, std::uint32_t rank) {
  return at_root(shape, rank, 0, [&](Phases& plan) {
    plan.copy(output(0), input(rank));
    plan.for_others([&](std::uint32_t peer) { plan.put(peer, output(0), input(peer)); });
  });
}

/// The output must not be the input: a rank would overwrite input that others have not read yet.
Schedule all_to_all(const Shape& shape, std::uint32_t rank) {
  return between_all(shape, rank, 0, [&](Phases& plan) {
    plan.copy(output(rank), input(rank));
    plan.for_others(
        [&](std::uint32_t peer) { plan.copy(output(peer), of_rank(peer, input(rank))); });
  });
}

Schedule barrier(const Shape& shape, std::uint32_t rank) {
  return between_all(shape, rank, 0, [](Phases& /*plan*/) {});
}

constexpr Planner kPlanners[kCollectiveCount] = {
    {kName, Collective::all_reduce,
     "Everyone sums one part of all inputs, and writes it to all outputs.", all_reduce},
    {kName, Collective::reduce, "The root sums all inputs.", reduce},
    {kName, Collective::broadcast, "Everyone copies one part of the root's input to all outputs.",
     broadcast},
    {kName, Collective::gather, "The root reads all inputs.", gather},
    {kName, Collective::scatter, "The root writes all outputs.", scatter},
    {kName, Collective::all_gather, "Everyone writes its input to all outputs.", all_gather},
    {kName, Collective::reduce_scatter, "Everyone sums one part of all inputs.", reduce_scatter},
    {kName, Collective::all_to_all, "Everyone reads one part of all inputs.", all_to_all},
    {kName, Collective::barrier, "Everyone signals everyone, twice.", barrier},
};

}  // namespace

std::span<const Planner> mapped_planners() noexcept { return kPlanners; }

const Planner& mapped_planner(Collective collective) noexcept {
  return *std::ranges::find(kPlanners, collective, &Planner::collective);
}

}  // namespace xylem::collectives
