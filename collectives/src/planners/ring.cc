// SPDX-License-Identifier: Apache-2.0
//
// Ring: every rank communicates only with its two neighbours, and every link carries the same
// number of bytes in every round. Bandwidth-optimal for all_reduce, all_gather and reduce_scatter
// (Patarasuk, Yuan: "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009);
// for broadcast and reduce it is a pipelined chain.
#include "planners/around.h"
#include "planners/registry.h"
#include "xylem/base/check.h"
#include "xylem/collectives/builder.h"

namespace xylem::collectives {
namespace {

constexpr std::string_view kName = "ring";

Ring ring_of(const Shape& shape, std::uint32_t rank) {
  XYLEM_CHECK(rank < shape.ranks, rank, shape.ranks);
  return make_ring(shape.ranks, rank, [](std::uint32_t place) { return place; });
}

Schedule all_reduce(const Shape& shape, std::uint32_t rank) {
  const Ring ring = ring_of(shape, rank);
  Builder plan(kName, shape, rank, shape.ranks);
  plan.reserve(std::size_t{5} * shape.ranks, std::size_t{7} * shape.ranks);
  if (shape.ranks == 1) plan.copy(output(0), input(0));
  // Block b starts at rank b, and is complete when it has reached rank b − 1.
  reduce_around(plan, ring, Pieces{}, Buffer::input, rank, true);
  pass_around(plan, ring, Pieces{}, ring.next, output(ring.next));
  return std::move(plan).take();
}

Schedule all_gather(const Shape& shape, std::uint32_t rank) {
  Builder plan(kName, shape, rank);
  pass_around(plan, ring_of(shape, rank), Pieces{}, rank, input(0));
  plan.copy(output(rank), input(0));
  return std::move(plan).take();
}

Schedule reduce_scatter(const Shape& shape, std::uint32_t rank) {
  Builder plan(kName, shape, rank);
  if (shape.ranks == 1) plan.copy(output(0), input(0));
  const Ring ring = ring_of(shape, rank);
  collect_around(
      plan, ring.size, ring.place,
      [](std::uint32_t block) {
        return BlockRange{block, 1};
      },
      [&](std::uint32_t, std::uint32_t) { return ring.next; },
      [&](std::uint32_t, std::uint32_t) { return ring.previous; },
      [](std::uint32_t block) { return BlockSums{input(block)}; }, true);
  return std::move(plan).take();
}

Schedule broadcast(const Shape& shape, std::uint32_t rank) {
  const Ring ring = ring_of(shape, rank);
  Builder plan(kName, shape, rank, 1);
  const bool is_root = rank == shape.root;
  if (!is_root) plan.recv(ring.previous, output(0));
  if (ring.next != shape.root) plan.send(ring.next, is_root ? input(0) : output(0));
  if (is_root) plan.copy(output(0), input(0));
  return std::move(plan).take();
}

Schedule reduce(const Shape& shape, std::uint32_t rank) {
  const Ring ring = ring_of(shape, rank);
  Builder plan(kName, shape, rank, 1);
  const bool is_root = rank == shape.root;
  Chunks sum = input(0);
  if (ring.previous != shape.root) {  // This rank is not the first of the chain.
    const Chunks partial = plan.add_scratch(0);
    plan.recv(ring.previous, partial);
    sum = is_root ? output(0) : plan.add_scratch(0);
    plan.reduce(sum, {partial, input(0)}, is_root);
  }
  if (!is_root) plan.send(ring.next, sum);
  if (shape.ranks == 1) plan.copy(output(0), input(0));
  return std::move(plan).take();
}

// Rotating the ring maps the plan onto itself.
Symmetry turns(const Shape& shape) {
  return Symmetry({{.radix = shape.ranks, .rank_stride = 1, .block_stride = 1}});
}

constexpr Planner kPlanners[] = {
    {kName, Collective::all_reduce,
     "Reduce-scatter then all-gather around a ring: fewest bytes per link, 2(n-1) rounds.",
     all_reduce, turns},
    {kName, Collective::all_gather,
     "Every block goes once around: fewest bytes per link, n-1 rounds.", all_gather, turns},
    {kName, Collective::reduce_scatter,
     "Every block collects its sum once around: fewest bytes per link, n-1 rounds.", reduce_scatter,
     turns},
    {kName, Collective::broadcast,
     "A pipelined chain from the root: full bandwidth for long messages, n-1 hops.", broadcast},
    {kName, Collective::reduce,
     "A pipelined chain to the root: full bandwidth for long messages, n-1 hops.", reduce},
};

}  // namespace

std::span<const Planner> ring_planners() noexcept { return kPlanners; }

}  // namespace xylem::collectives
