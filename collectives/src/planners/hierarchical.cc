// SPDX-License-Identifier: Apache-2.0
//
// Hierarchical: the data is divided into parts, one for each rail. Only traffic along the rails
// uses the network. In an all_reduce, each rank of a host first sums the parts of its rails over
// the host. Then every rail combines its part between the hosts; all rails run at the same time,
// each over its own NIC. Finally the ranks of a host exchange the results. So a host sends about
// twice the data, whatever the number of its ranks (Cho et al.: "BlueConnect: Decomposing
// all-reduce for deep learning on heterogeneous network hierarchy", 2019).
//
// There are as many rails as the largest host has ranks. If a host has fewer ranks, its ranks serve
// several rails each.
#include "planners/around.h"
#include "planners/registry.h"
#include "planners/trees.h"
#include "xylem/base/check.h"
#include "xylem/collectives/builder.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace xylem::collectives {
namespace {

constexpr std::string_view kRing = "hierarchical_ring";
constexpr std::string_view kTree = "hierarchical_tree";

// Where the ranks are, as seen from one rank: its host, and its place on the host.
class Grid {
 public:
  Grid(const Shape& shape, std::uint32_t rank) : sizes_(shape.host_sizes) {
    XYLEM_CHECK(rank < shape.ranks, rank, shape.ranks);
    if (sizes_.empty()) {
      per_host_ = rails_ = shape.per_host;
      hosts_ = hosts_of(shape);
      host_ = rank / per_host_;
      place_ = rank % per_host_;
      return;
    }
    hosts_ = static_cast<std::uint32_t>(sizes_.size());
    first_.reserve(hosts_);
    for (std::uint32_t first = 0; const std::uint32_t size : sizes_) {
      if (rank >= first && rank < first + size) {
        host_ = static_cast<std::uint32_t>(first_.size());
        place_ = rank - first;
      }
      first_.push_back(first);
      rails_ = std::max(rails_, size);
      first += size;
    }
  }

  static std::uint32_t hosts_of(const Shape& shape) {
    const bool divides = shape.per_host > 0 && shape.ranks % shape.per_host == 0;
    XYLEM_CHECK(divides, shape.ranks, shape.per_host);
    return shape.ranks / shape.per_host;
  }

  std::uint32_t hosts() const { return hosts_; }
  std::uint32_t rails() const { return rails_; }
  std::uint32_t host() const { return host_; }
  std::uint32_t place() const { return place_; }
  /// The number of ranks on a host.
  std::uint32_t places(std::uint32_t host) const {
    return sizes_.empty() ? per_host_ : sizes_[host];
  }
  std::uint32_t places() const { return places(host_); }
  std::uint32_t rank_at(std::uint32_t host, std::uint32_t place) const {
    return (sizes_.empty() ? host * per_host_ : first_[host]) + place;
  }
  /// The rank of this host at a place.
  std::uint32_t beside(std::uint32_t place) const { return rank_at(host_, place); }
  /// If `shares` things are distributed evenly over the places of a host, in order: those of one
  /// place; and the rank that has thing `share`.
  BlockRange shares_of(std::uint32_t place, std::uint32_t shares) const {
    const auto first = [&](std::uint32_t of) { return (of * shares + places() - 1) / places(); };
    return {first(place), first(place + 1) - first(place)};
  }
  std::uint32_t rank_with(std::uint32_t host, std::uint32_t share, std::uint32_t shares) const {
    return rank_at(host, share * places(host) / shares);
  }
  std::uint32_t host_after() const { return (host_ + 1) % hosts_; }
  std::uint32_t host_before() const { return host_back(1); }
  std::uint32_t host_back(std::uint32_t distance) const {
    return (host_ + hosts_ - distance) % hosts_;
  }

  /// The buffer with a rank's contribution to its rails. On a host with several ranks this is the
  /// output, which then holds the sum of the host.
  Buffer rail_buffer() const { return places() > 1 ? Buffer::output : Buffer::input; }
  Ring of_host() const {
    return make_ring(places(), place_, [&](std::uint32_t at) { return beside(at); });
  }
  Ring of_rail(std::uint32_t rail) const {
    return make_ring(hosts_, host_, [&](std::uint32_t at) { return rank_with(at, rail, rails_); });
  }

 private:
  std::uint32_t hosts_ = 1, per_host_ = 1, rails_ = 1, host_ = 0, place_ = 0;
  const std::vector<std::uint32_t>& sizes_;
  std::vector<std::uint32_t> first_;  ///< The first rank of each host, if they are unequal.
};

// One block for each rail, from block `first` on. Piece p consists of the blocks of the rails of
// place p.
struct RailPieces {
  const Grid& grid;
  std::uint32_t first;

  Chunks in(Buffer buffer, std::uint32_t place) const {
    const BlockRange rails = grid.shares_of(place, grid.rails());
    return {buffer, first + rails.first, rails.count};
  }
};

// Calls visit(rail) for the rails of this rank.
template <typename Visit>
void for_each_rail(const Grid& grid, Visit&& visit) {
  const BlockRange mine = grid.shares_of(grid.place(), grid.rails());
  for (std::uint32_t rail = mine.first; rail < mine.first + mine.count; ++rail) visit(rail);
}

// The data has a part for each host, and each part a block for each rail. A host sums its part
// first, then those of the hosts before it, in the order in which the rails send them; so the
// network is in use while the ranks of a host still sum other parts. The rings of a rank's rails
// take turns, since they may use the same links.
Schedule all_reduce_ring(const Shape& shape, std::uint32_t rank) {
  const Grid grid(shape, rank);
  const std::uint32_t hosts = grid.hosts(), rails = grid.rails();
  const Ring host = grid.of_host();
  Builder plan(kRing, shape, rank, hosts * rails);
  const std::size_t rounds = std::size_t{hosts} * grid.places();
  plan.reserve(5 * rounds, 7 * rounds);
  if (shape.ranks == 1) plan.copy(output(0), input(0));
  const auto blocks_of_rail = [&](std::uint32_t rail) { return Pieces{rail, 1, rails}; };
  for (std::uint32_t round = 0; round < hosts; ++round) {
    const RailPieces part{grid, grid.host_back(round) * rails};
    reduce_around(plan, host, part, Buffer::input, host.back(1), hosts == 1);
    for_each_rail(grid, [&](std::uint32_t rail) {
      if (round == 0) return;
      reduce_round(plan, grid.of_rail(rail), blocks_of_rail(rail), grid.rail_buffer(), grid.host(),
                   true, round - 1);
    });
  }
  // The host after this one owns the part that this host has completed.
  for (std::uint32_t round = 0; round < hosts; ++round) {
    const RailPieces part{grid, (grid.host_after() + hosts - round) % hosts * rails};
    for_each_rail(grid, [&](std::uint32_t rail) {
      if (round + 1 == hosts) return;
      const Pieces blocks = blocks_of_rail(rail);
      pass_round(plan, grid.of_rail(rail), blocks, grid.host_after(),
                 blocks.in(Buffer::output, grid.host_after()), round);
    });
    pass_around(plan, host, part, grid.place(), part.in(Buffer::output, grid.place()));
  }
  return std::move(plan).take();
}

// The blocks of the ranks of host `of` that pass a place of this host.
BlockRange blocks_at(const Grid& grid, std::uint32_t of, std::uint32_t place) {
  const BlockRange shares = grid.shares_of(place, grid.places(of));
  return {grid.rank_at(of, shares.first), shares.count};
}

// The rank of host `at` that a block of host `of` passes.
std::uint32_t carrier(const Grid& grid, std::uint32_t at, std::uint32_t of, std::uint32_t block) {
  return grid.rank_with(at, block - grid.rank_at(of, 0), grid.places(of));
}

// A block travels from host to host, and on each host around the ranks of that host.
Schedule all_gather_ring(const Shape& shape, std::uint32_t rank) {
  const Grid grid(shape, rank);
  const Ring host = grid.of_host();
  Builder plan(kRing, shape, rank);
  const auto at = [&](std::uint32_t block) { return block == rank ? input(0) : output(block); };
  const auto for_each = [](BlockRange blocks, auto&& visit) {
    for (std::uint32_t i = 0; i < blocks.count; ++i) visit(blocks.first + i);
  };
  for (std::uint32_t round = 0; round < grid.hosts(); ++round) {
    const std::uint32_t from = grid.host_back(round);
    if (round + 1 < grid.hosts()) {
      const std::uint32_t later = grid.host_back(round + 1);
      for_each(blocks_at(grid, from, grid.place()), [&](std::uint32_t block) {
        plan.send(carrier(grid, grid.host_after(), from, block), at(block));
      });
      for_each(blocks_at(grid, later, grid.place()), [&](std::uint32_t block) {
        plan.recv(carrier(grid, grid.host_before(), later, block), output(block));
      });
    }
    for (std::uint32_t turn = 0; turn + 1 < host.size; ++turn) {
      for_each(blocks_at(grid, from, host.back(turn)),
               [&](std::uint32_t block) { plan.send(host.next, at(block)); });
      for_each(blocks_at(grid, from, host.back(turn + 1)),
               [&](std::uint32_t block) { plan.recv(host.previous, output(block)); });
    }
  }
  plan.copy(output(rank), input(0));
  return std::move(plan).take();
}

// The ring of a host sums the data for one target host after another, in the order in which the
// rails send it.
Schedule reduce_scatter_ring(const Shape& shape, std::uint32_t rank) {
  const Grid grid(shape, rank);
  const Ring host = grid.of_host();
  Builder plan(kRing, shape, rank);
  if (shape.ranks == 1) plan.copy(output(0), input(0));
  const auto sum_of_host = [&](std::uint32_t to) {
    const auto blocks = [&](std::uint32_t place) { return blocks_at(grid, to, place); };
    const auto own = [&](std::uint32_t place) {
      BlockSums inputs;
      const BlockRange range = blocks(place);
      for (std::uint32_t i = 0; i < range.count; ++i) inputs.push_back(input(range.first + i));
      return inputs;
    };
    return collect_around(
        plan, host.size, host.place, blocks,
        [&](std::uint32_t, std::uint32_t) { return host.next; },
        [&](std::uint32_t, std::uint32_t) { return host.previous; }, own, grid.hosts() == 1);
  };
  collect_around(
      plan, grid.hosts(), grid.host(),
      [&](std::uint32_t to) { return blocks_at(grid, to, grid.place()); },
      [&](std::uint32_t to, std::uint32_t block) {
        return carrier(grid, grid.host_after(), to, block);
      },
      [&](std::uint32_t to, std::uint32_t block) {
        return carrier(grid, grid.host_before(), to, block);
      },
      sum_of_host, grid.hosts() > 1);
  return std::move(plan).take();
}

// Piece p belongs to place p. Every rank of a host sends each piece from its input to the rank at
// the piece's place. Then it sums all contributions to its own piece, in rank order.
void reduce_directly(Builder& plan, const Grid& grid, RailPieces pieces, std::uint8_t channel) {
  const std::uint32_t places = grid.places();
  for (std::uint32_t distance = 1; distance < places; ++distance) {
    const std::uint32_t other = (grid.place() + distance) % places;
    plan.send(grid.beside(other), pieces.in(Buffer::input, other), channel);
  }
  const Chunks own = pieces.in(Buffer::input, grid.place());
  std::vector<Chunks> sources(places, own);
  for (std::uint32_t distance = 1; distance < places; ++distance) {
    const std::uint32_t other = (grid.place() + places - distance) % places;
    sources[other] = plan.add_scratch(own.first, own.count);
    plan.recv(grid.beside(other), sources[other], channel);
  }
  if (places > 1) {
    plan.reduce(pieces.in(Buffer::output, grid.place()), sources, grid.hosts() == 1);
  }
}

// Every rank of a host sends its piece of the output to each other rank of the host.
void gather_directly(Builder& plan, const Grid& grid, RailPieces pieces, std::uint8_t channel) {
  const std::uint32_t places = grid.places();
  for (std::uint32_t distance = 1; distance < places; ++distance) {
    const std::uint32_t to = (grid.place() + distance) % places;
    plan.send(grid.beside(to), pieces.in(Buffer::output, grid.place()), channel);
  }
  for (std::uint32_t distance = 1; distance < places; ++distance) {
    const std::uint32_t from = (grid.place() + places - distance) % places;
    plan.recv(grid.beside(from), pieces.in(Buffer::output, from), channel);
  }
}

// Tree c uses channel c and one block for each rail, both within hosts and between them. So all
// steps on a block have the same slices, and the phases overlap.
Schedule all_reduce_tree(const Shape& shape, std::uint32_t rank) {
  const Grid grid(shape, rank);
  Builder plan(kTree, shape, rank, kTrees * grid.rails(), kTrees);
  for (std::uint8_t tree = 0; tree < kTrees; ++tree) {
    const RailPieces pieces{grid, tree * grid.rails()};
    if (shape.ranks == 1) plan.copy(pieces.in(Buffer::output, 0), pieces.in(Buffer::input, 0));
    reduce_directly(plan, grid, pieces, tree);
    for_each_rail(grid, [&](std::uint32_t rail) {
      if (grid.hosts() == 1) return;
      Node node = tree_node(tree, grid.hosts(), grid.host());
      for (std::uint32_t* at : {&node.parent, &node.left, &node.right}) {
        if (*at != kNone) *at = grid.rank_with(*at, rail, grid.rails());
      }
      const Chunks whole = output(pieces.first + rail);
      const Chunks own{grid.rail_buffer(), whole.first};
      const Chunks sum = collect(plan, node, tree, own, whole, node.parent == kNone);
      if (node.parent != kNone) {
        plan.send(node.parent, sum, tree);
        plan.recv(node.parent, whole, tree);
      }
      distribute(plan, node, tree, whole);
    });
    gather_directly(plan, grid, pieces, tree);
  }
  return std::move(plan).take();
}

// The plan is mapped onto itself by moving every rank to the next host, or to the next place on its
// host. If hosts are unequal, nothing maps it onto itself.
Symmetry ring_symmetry(const Shape& shape) {
  if (!shape.host_sizes.empty()) return Symmetry({{.radix = 1, .rank_stride = shape.ranks}});
  const std::uint32_t hosts = Grid::hosts_of(shape);
  return Symmetry(
      {{.radix = shape.per_host, .rank_stride = 1, .block_stride = 1},
       {.radix = hosts, .rank_stride = shape.per_host, .block_stride = shape.per_host}});
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
