// SPDX-License-Identifier: Apache-2.0
//
// Hierarchical: the ranks with the same place on their hosts form a rail, and only traffic along
// the rails uses the network. In an all_reduce, each rank of a host first sums one part of the data
// of its host. Then every rail combines its part between the hosts; all rails run at the same time,
// each over its own NIC. Finally the ranks of a host exchange the results. So a host sends about
// twice the data, whatever the number of its ranks (Cho et al.: "BlueConnect: Decomposing
// all-reduce for deep learning on heterogeneous network hierarchy", 2019).
#include "planners/around.h"
#include "planners/registry.h"
#include "planners/trees.h"
#include "xylem/base/check.h"
#include "xylem/collectives/builder.h"

#include <vector>

namespace xylem::collectives {
namespace {

constexpr std::string_view kRing = "hierarchical_ring";
constexpr std::string_view kTree = "hierarchical_tree";

// The position of a rank: its host, and its place on the host, which is also its rail.
struct Grid {
  std::uint32_t hosts, places, host, place;

  Grid(const Shape& shape, std::uint32_t rank)
      : hosts(hosts_of(shape)), places(shape.per_host), host(rank / places), place(rank % places) {
    XYLEM_CHECK(rank < shape.ranks, rank, shape.ranks);
  }

  static std::uint32_t hosts_of(const Shape& shape) {
    const bool divides = shape.per_host > 0 && shape.ranks % shape.per_host == 0;
    XYLEM_CHECK(divides, shape.ranks, shape.per_host);
    return shape.ranks / shape.per_host;
  }
  std::uint32_t rank_at(std::uint32_t of_host, std::uint32_t at_place) const {
    return of_host * places + at_place;
  }
  /// The buffer with a rank's contribution to its rail. On a host with several ranks this is the
  /// output, which then holds the sum of the host.
  Buffer rail_buffer() const { return places > 1 ? Buffer::output : Buffer::input; }
  Ring of_host() const {
    return make_ring(places, place, [&](std::uint32_t at) { return rank_at(host, at); });
  }
  Ring of_rail() const {
    return make_ring(hosts, host, [&](std::uint32_t at) { return rank_at(at, place); });
  }
};

// Part p of the data belongs to rail p. It has `hosts` blocks, and its block h belongs to host h.
Schedule all_reduce_ring(const Shape& shape, std::uint32_t rank) {
  const Grid grid(shape, rank);
  const Ring host = grid.of_host();
  const Ring rail = grid.of_rail();
  const Pieces parts{0, grid.hosts};
  const Pieces blocks{parts.in(Buffer::output, grid.place).first, 1};
  Builder plan(kRing, shape, rank, shape.ranks);
  const std::size_t rounds = grid.hosts + grid.places;
  plan.reserve(5 * rounds, 7 * rounds);
  if (shape.ranks == 1) plan.copy(output(0), input(0));
  reduce_around(plan, host, parts, Buffer::input, host.back(1), grid.hosts == 1);
  reduce_around(plan, rail, blocks, grid.rail_buffer(), grid.host, true);
  const std::uint32_t complete = (grid.host + 1) % grid.hosts;
  pass_around(plan, rail, blocks, complete, blocks.in(Buffer::output, complete));
  pass_around(plan, host, parts, grid.place, parts.in(Buffer::output, grid.place));
  return std::move(plan).take();
}

// A block travels along its rank's rail, and on each host around the ranks of that host.
Schedule all_gather_ring(const Shape& shape, std::uint32_t rank) {
  const Grid grid(shape, rank);
  const Ring host = grid.of_host();
  const Ring rail = grid.of_rail();
  Builder plan(kRing, shape, rank);
  const auto of_rail = [&](std::uint32_t from) { return output(grid.rank_at(from, grid.place)); };
  for (std::uint32_t round = 0; round < grid.hosts; ++round) {
    const std::uint32_t from = rail.back(round);
    const Chunks block = round == 0 ? input(0) : of_rail(from);
    if (round + 1 < grid.hosts) {
      plan.send(rail.next, block);
      plan.recv(rail.previous, of_rail(rail.back(round + 1)));
    }
    pass_around(plan, host, {grid.rank_at(from, 0)}, grid.place, block);
  }
  plan.copy(output(rank), input(0));
  return std::move(plan).take();
}

// The ring of a host sums the data for one target host after another, in the order in which the
// rails send it.
Schedule reduce_scatter_ring(const Shape& shape, std::uint32_t rank) {
  const Grid grid(shape, rank);
  const Ring host = grid.of_host();
  const Ring rail = grid.of_rail();
  Builder plan(kRing, shape, rank);
  if (shape.ranks == 1) plan.copy(output(0), input(0));
  const auto sum_of_host = [&](std::uint32_t to) {
    const Pieces pieces{grid.rank_at(to, 0)};
    const auto own = [&](std::uint32_t place) { return pieces.in(Buffer::input, place); };
    return collect_around(plan, host, pieces, own, grid.hosts == 1);
  };
  const Pieces blocks{grid.place, 1, grid.places};
  collect_around(plan, rail, blocks, sum_of_host, grid.hosts > 1);
  return std::move(plan).take();
}

// Piece p belongs to place p. Every rank of a host sends each piece from its input to the rank at
// the piece's place. Then it sums all contributions to its own piece, in rank order.
void reduce_directly(Builder& plan, const Grid& grid, Pieces pieces, std::uint8_t channel) {
  for (std::uint32_t distance = 1; distance < grid.places; ++distance) {
    const std::uint32_t other = (grid.place + distance) % grid.places;
    plan.send(grid.rank_at(grid.host, other), pieces.in(Buffer::input, other), channel);
  }
  std::vector<Chunks> sources(grid.places, pieces.in(Buffer::input, grid.place));
  for (std::uint32_t distance = 1; distance < grid.places; ++distance) {
    const std::uint32_t other = (grid.place + grid.places - distance) % grid.places;
    sources[other] = plan.add_scratch(sources[other].first, pieces.blocks);
    plan.recv(grid.rank_at(grid.host, other), sources[other], channel);
  }
  if (grid.places > 1) {
    plan.reduce(pieces.in(Buffer::output, grid.place), sources, grid.hosts == 1);
  }
}

// Every rank of a host sends its piece of the output to each other rank of the host.
void gather_directly(Builder& plan, const Grid& grid, Pieces pieces, std::uint8_t channel) {
  for (std::uint32_t distance = 1; distance < grid.places; ++distance) {
    const std::uint32_t to = (grid.place + distance) % grid.places;
    plan.send(grid.rank_at(grid.host, to), pieces.in(Buffer::output, grid.place), channel);
  }
  for (std::uint32_t distance = 1; distance < grid.places; ++distance) {
    const std::uint32_t from = (grid.place + grid.places - distance) % grid.places;
    plan.recv(grid.rank_at(grid.host, from), pieces.in(Buffer::output, from), channel);
  }
}

// Tree c uses channel c and one block for each rail, both within hosts and between them. So all
// steps on a block have the same slices, and the phases overlap.
Schedule all_reduce_tree(const Shape& shape, std::uint32_t rank) {
  const Grid grid(shape, rank);
  Builder plan(kTree, shape, rank, kTrees * grid.places, kTrees);
  for (std::uint8_t tree = 0; tree < kTrees; ++tree) {
    const Pieces pieces{tree * grid.places, 1};
    const Chunks whole = pieces.in(Buffer::output, grid.place);
    if (shape.ranks == 1) plan.copy(whole, pieces.in(Buffer::input, 0));
    reduce_directly(plan, grid, pieces, tree);
    if (grid.hosts > 1) {
      Node node = tree_node(tree, grid.hosts, grid.host);
      for (std::uint32_t* at : {&node.parent, &node.left, &node.right}) {
        if (*at != kNone) *at = grid.rank_at(*at, grid.place);
      }
      const Chunks own = pieces.in(grid.rail_buffer(), grid.place);
      const Chunks sum = collect(plan, node, tree, own, whole, node.parent == kNone);
      if (node.parent != kNone) {
        plan.send(node.parent, sum, tree);
        plan.recv(node.parent, whole, tree);
      }
      distribute(plan, node, tree, whole);
    }
    gather_directly(plan, grid, pieces, tree);
  }
  return std::move(plan).take();
}

// The plan is mapped onto itself by moving every rank to the next host, or to the next place on its
// host.
Symmetry ring_symmetry(const Shape& shape) {
  const std::uint32_t hosts = Grid::hosts_of(shape);
  return Symmetry({{.radix = shape.per_host, .rank_stride = 1, .block_stride = hosts},
                   {.radix = hosts, .rank_stride = shape.per_host, .block_stride = 1}});
}

constexpr Planner kPlanners[] = {
    {.name = kRing,
     .collective = Collective::all_reduce,
     .summary =
         "Rings inside the hosts, then one ring per rail between them: fewest bytes per link.",
     .plan = all_reduce_ring,
     .symmetry = ring_symmetry,
     .takes_hosts = true},
    {.name = kRing,
     .collective = Collective::all_gather,
     .summary = "One ring per rail between the hosts, and rings inside them: fewest bytes per NIC.",
     .plan = all_gather_ring,
     .symmetry = ring_symmetry,
     .takes_hosts = true},
    {.name = kRing,
     .collective = Collective::reduce_scatter,
     .summary = "Rings inside the hosts, and one ring per rail between them: fewest bytes per NIC.",
     .plan = reduce_scatter_ring,
     .symmetry = ring_symmetry,
     .takes_hosts = true},
    {.name = kTree,
     .collective = Collective::all_reduce,
     .summary =
         "Directly inside the hosts, then two trees per rail between them: fewest latencies.",
     .plan = all_reduce_tree,
     .takes_hosts = true},
};

}  // namespace

std::span<const Planner> hierarchical_planners() noexcept { return kPlanners; }

}  // namespace xylem::collectives
