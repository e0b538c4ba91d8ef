// SPDX-License-Identifier: Apache-2.0
//
// Direct: every block goes from its owner directly to each rank that needs it, all at the same
// time. This takes one latency and needs no forwarding, but the links may be congested.
#include "planners/registry.h"
#include "xylem/collectives/builder.h"

#include <vector>

namespace xylem::collectives {
namespace {

constexpr std::string_view kName = "direct";

// Calls visit(to, from) for each distance d = 1 … n − 1, where `to` is the rank d after this rank
// and `from` the rank d before it. So the ranks do not all begin with the same peer.
template <typename Visit>
void for_each_distance(const Shape& shape, std::uint32_t rank, Visit&& visit) {
  const std::uint32_t n = shape.ranks;
  for (std::uint32_t d = 1; d < n; ++d) visit((rank + d) % n, (rank + n - d) % n);
}

Schedule gather(const Shape& shape, std::uint32_t rank) {
  Builder plan(kName, shape, rank);
  if (rank != shape.root) {
    plan.send(shape.root, input(0));
    return std::move(plan).take();
  }
  for_each_distance(shape, rank,
                    [&](std::uint32_t peer, std::uint32_t) { plan.recv(peer, output(peer)); });
  plan.copy(output(rank), input(0));
  return std::move(plan).take();
}

Schedule broadcast(const Shape& shape, std::uint32_t rank) {
  Builder plan(kName, shape, rank, 1);
  if (rank != shape.root) {
    plan.recv(shape.root, output(0));
    return std::move(plan).take();
  }
  for_each_distance(shape, rank,
                    [&](std::uint32_t peer, std::uint32_t) { plan.send(peer, input(0)); });
  plan.copy(output(0), input(0));
  return std::move(plan).take();
}

Schedule scatter(const Shape& shape, std::uint32_t rank) {
  Builder plan(kName, shape, rank);
  if (rank != shape.root) {
    plan.recv(shape.root, output(0));
    return std::move(plan).take();
  }
  for_each_distance(shape, rank,
                    [&](std::uint32_t peer, std::uint32_t) { plan.send(peer, input(peer)); });
  plan.copy(output(0), input(rank));
  return std::move(plan).take();
}

Schedule all_gather(const Shape& shape, std::uint32_t rank) {
  Builder plan(kName, shape, rank);
  for_each_distance(shape, rank, [&](std::uint32_t to, std::uint32_t from) {
    plan.send(to, input(0));
    plan.recv(from, output(from));
  });
  plan.copy(output(rank), input(0));
  return std::move(plan).take();
}

Schedule all_to_all(const Shape& shape, std::uint32_t rank) {
  Builder plan(kName, shape, rank);
  for_each_distance(shape, rank, [&](std::uint32_t to, std::uint32_t from) {
    plan.send(to, input(to));
    plan.recv(from, output(from));
  });
  plan.copy(output(rank), input(rank));
  return std::move(plan).take();
}

Schedule reduce_scatter(const Shape& shape, std::uint32_t rank) {
  Builder plan(kName, shape, rank);
  // sources[r] is the chunk with the contribution of rank r. The contribution of this rank is in
  // its input.
  std::vector<Chunks> sources(shape.ranks, input(rank));
  for_each_distance(shape, rank, [&](std::uint32_t to, std::uint32_t from) {
    plan.send(to, input(to));
    sources[from] = plan.add_scratch(rank);
    plan.recv(from, sources[from]);
  });
  if (shape.ranks == 1) {
    plan.copy(output(0), input(0));
  } else {
    plan.reduce(output(0), sources, true);
  }
  return std::move(plan).take();
}

Schedule barrier(const Shape& shape, std::uint32_t rank) {
  Builder plan(kName, shape, rank);
  for_each_distance(shape, rank, [&](std::uint32_t to, std::uint32_t) { plan.signal(to); });
  for_each_distance(shape, rank, [&](std::uint32_t, std::uint32_t from) { plan.wait(from, 1); });
  return std::move(plan).take();
}

// Every rank does the same with the ranks at each distance.
Symmetry turns(const Shape& shape) {
  return Symmetry({{.radix = shape.ranks, .rank_stride = 1, .block_stride = 1}});
}

constexpr Planner kPlanners[] = {
    {kName, Collective::gather, "Everyone sends to the root: one latency.", gather},
    {kName, Collective::broadcast,
     "The root sends to everyone: one latency, and where they share memory, written once.",
     broadcast},
    {kName, Collective::scatter, "The root sends to everyone: one latency.", scatter},
    {kName, Collective::all_gather, "Everyone sends to everyone: one latency.", all_gather, turns},
    {kName, Collective::all_to_all, "All pairs at once: one latency.", all_to_all, turns},
    {kName, Collective::reduce_scatter,
     "Everyone sends to each owner, which sums in one pass: one latency.", reduce_scatter},
    {kName, Collective::barrier, "Everyone signals everyone: one latency.", barrier},
};

}  // namespace

std::span<const Planner> direct_planners() noexcept { return kPlanners; }

}  // namespace xylem::collectives
