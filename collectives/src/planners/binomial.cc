// SPDX-License-Identifier: Apache-2.0
//
// Binomial tree: ceil(log2 n) rounds towards the root or away from it. The subtree of each rank is
// a run of consecutive ranks, counted from the root (Thakur, Rabenseifner, Gropp: "Optimization of
// collective communication operations in MPICH", 2005).
#include "planners/cyclic.h"
#include "planners/registry.h"
#include "xylem/collectives/builder.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace xylem::collectives {
namespace {

constexpr std::string_view kName = "binomial";

// A rank's place in the tree. Counted from the root, place v has the children v + 1, v + 2, v + 4,
// … below v + reach, where reach is the lowest set bit of v. Its subtree consists of the places v …
// v + size − 1.
class Place {
 public:
  Place(const Shape& shape, std::uint32_t rank)
      : shape_(shape), place_((rank + shape.ranks - shape.root) % shape.ranks) {}

  bool is_root() const { return place_ == 0; }
  bool is_leaf() const { return children().empty(); }
  std::uint32_t parent() const { return rank_at(place_ & (place_ - 1)); }
  std::uint32_t rank_at(std::uint32_t place) const { return (place + shape_.root) % shape_.ranks; }
  /// Distances from this place to its children, ascending.
  std::vector<std::uint32_t> children() const {
    std::vector<std::uint32_t> result;
    for (std::uint32_t d = 1; d < reach() && place_ + d < shape_.ranks; d *= 2) result.push_back(d);
    return result;
  }
  /// Distances of the children, descending: the children with the largest subtrees first.
  std::vector<std::uint32_t> far_children() const {
    std::vector<std::uint32_t> result = children();
    std::ranges::reverse(result);
    return result;
  }
  std::uint32_t child(std::uint32_t distance) const { return rank_at(place_ + distance); }
  /// Number of ranks in the subtree of this rank, or of the child at `distance`.
  std::uint32_t size() const { return std::min(reach(), shape_.ranks - place_); }
  std::uint32_t size(std::uint32_t distance) const {
    return std::min(distance, shape_.ranks - place_ - distance);
  }

 private:
  std::uint32_t reach() const {
    return is_root() ? std::bit_ceil(shape_.ranks) : place_ & (~place_ + 1);
  }
  Shape shape_;
  std::uint32_t place_;
};

Schedule broadcast(const Shape& shape, std::uint32_t rank) {
  const Place place(shape, rank);
  Builder plan(kName, shape, rank, 1);
  if (!place.is_root()) plan.recv(place.parent(), output(0));
  for (const std::uint32_t distance : place.far_children()) {
    plan.send(place.child(distance), place.is_root() ? input(0) : output(0));
  }
  if (place.is_root()) plan.copy(output(0), input(0));
  return std::move(plan).take();
}

Schedule reduce(const Shape& shape, std::uint32_t rank) {
  const Place place(shape, rank);
  Builder plan(kName, shape, rank, 1);
  std::vector<Chunks> sources = {input(0)};
  for (const std::uint32_t distance : place.children()) {
    sources.push_back(plan.add_scratch(0));
    plan.recv(place.child(distance), sources.back());
  }
  Chunks sum = input(0);
  if (!place.is_leaf()) {
    sum = place.is_root() ? output(0) : plan.add_scratch(0);
    plan.reduce(sum, sources, place.is_root());
  }
  if (!place.is_root()) plan.send(place.parent(), sum);
  if (shape.ranks == 1) plan.copy(output(0), input(0));
  return std::move(plan).take();
}

// Adds scratch for the blocks of this rank's subtree, in the order of places. The root needs no
// such scratch, since it uses its output or input. Leaves need none, since they forward nothing.
Chunks add_subtree(Builder& plan, const Place& place, std::uint32_t rank, std::uint32_t ranks) {
  Chunks subtree;
  for_each_piece(rank, place.size(), ranks,
                 [&](std::uint32_t offset, std::uint32_t block, std::uint32_t count) {
                   const Chunks piece = plan.add_scratch(block, count);
                   if (offset == 0) subtree = piece;
                 });
  return subtree;
}

Schedule gather(const Shape& shape, std::uint32_t rank) {
  const Place place(shape, rank);
  Builder plan(kName, shape, rank);
  if (!place.is_root() && place.is_leaf()) {
    plan.send(place.parent(), input(0));
    return std::move(plan).take();
  }
  Chunks subtree;
  if (!place.is_root()) subtree = add_subtree(plan, place, rank, shape.ranks);
  for (const std::uint32_t distance : place.children()) {
    const std::uint32_t child = place.child(distance);
    const auto receive = [&](std::uint32_t offset, std::uint32_t block, std::uint32_t count) {
      const std::uint32_t at = subtree.first + distance + offset;
      plan.recv(child, place.is_root() ? output(block, count) : scratch(at, count));
    };
    for_each_piece(child, place.size(distance), shape.ranks, receive);
  }
  if (place.is_root()) {
    plan.copy(output(rank), input(0));
    return std::move(plan).take();
  }
  plan.copy(scratch(subtree.first), input(0));
  const auto send = [&](std::uint32_t offset, std::uint32_t, std::uint32_t count) {
    plan.send(place.parent(), scratch(subtree.first + offset, count));
  };
  for_each_piece(rank, place.size(), shape.ranks, send);
  return std::move(plan).take();
}

Schedule scatter(const Shape& shape, std::uint32_t rank) {
  const Place place(shape, rank);
  Builder plan(kName, shape, rank);
  if (!place.is_root() && place.is_leaf()) {
    plan.recv(place.parent(), output(0));
    return std::move(plan).take();
  }
  Chunks subtree;
  if (!place.is_root()) {
    subtree = add_subtree(plan, place, rank, shape.ranks);
    const auto receive = [&](std::uint32_t offset, std::uint32_t, std::uint32_t count) {
      plan.recv(place.parent(), scratch(subtree.first + offset, count));
    };
    for_each_piece(rank, place.size(), shape.ranks, receive);
  }
  for (const std::uint32_t distance : place.far_children()) {
    const std::uint32_t child = place.child(distance);
    const auto send = [&](std::uint32_t offset, std::uint32_t block, std::uint32_t count) {
      const std::uint32_t at = subtree.first + distance + offset;
      plan.send(child, place.is_root() ? input(block, count) : scratch(at, count));
    };
    for_each_piece(child, place.size(distance), shape.ranks, send);
  }
  plan.copy(output(0), place.is_root() ? input(rank) : scratch(subtree.first));
  return std::move(plan).take();
}

constexpr Planner kPlanners[] = {
    {kName, Collective::broadcast,
     "A binomial tree from the root: fewest rounds, for short messages.", broadcast},
    {kName, Collective::reduce, "A binomial tree to the root: fewest rounds, for short messages.",
     reduce},
    {.name = kName,
     .collective = Collective::gather,
     .summary = "Subtrees collect their blocks: fewest rounds, for short messages.",
     .plan = gather,
     .moves_ranges = true},
    {.name = kName,
     .collective = Collective::scatter,
     .summary = "Subtrees pass their blocks on: fewest rounds, for short messages.",
     .plan = scatter,
     .moves_ranges = true},
};

}  // namespace

std::span<const Planner> binomial_planners() noexcept { return kPlanners; }

}  // namespace xylem::collectives
