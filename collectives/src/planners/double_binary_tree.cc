// SPDX-License-Identifier: Apache-2.0
//
// Two binary trees, each carrying half of the data, such that a rank with children in one is a leaf
// of the other: every rank sends and receives the whole once per direction, in logarithmic depth
// (Sanders, Speck, Träff: "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
// 2009). Tree c carries block c on channel c.
#include "planners/registry.h"
#include "xylem/collectives/builder.h"

#include <vector>

namespace xylem::collectives {
namespace {

constexpr std::string_view kName = "double_binary_tree";
constexpr std::uint32_t kTrees = 2;

// Neighbours in one tree.
struct Node {
  std::uint32_t parent = kNone;
  std::uint32_t left = kNone;  ///< Child on the side of the lower ranks.
  std::uint32_t right = kNone;
};

// Root of the subtree over [low, high): an odd position near the middle, or the only one. `low` is
// always even.
std::uint32_t subtree_root(std::uint32_t low, std::uint32_t high) {
  const std::uint32_t size = high - low;
  return size == 1 ? low : low + ((size / 2) | 1);
}

// Place of `position` in a binary tree over positions 0 … size − 1 in search order, where even
// positions are leaves.
Node search_tree(std::uint32_t size, std::uint32_t position) {
  Node node;
  std::uint32_t low = 0, high = size;
  std::uint32_t root = subtree_root(low, high);
  while (root != position) {
    node.parent = root;
    (position < root ? high : low) = position < root ? root : root + 1;
    root = subtree_root(low, high);
  }
  if (low < root) node.left = subtree_root(low, root);
  if (root + 1 < high) node.right = subtree_root(root + 1, high);
  return node;
}

// The second tree is the first shifted by one, so that its leaves are the odd positions.
Node tree_node(std::uint32_t tree, std::uint32_t size, std::uint32_t position) {
  Node node = search_tree(size, (position + size - tree) % size);
  for (std::uint32_t* at : {&node.parent, &node.left, &node.right}) {
    if (*at != kNone) *at = (*at + tree) % size;
  }
  return node;
}

// Sums what the children hold and `own`, left to right, into `sum`, which is unused at a leaf.
// Returns where the sum is.
Chunks collect(Builder& plan, const Node& node, std::uint32_t tree, Chunks sum, bool finish) {
  const auto channel = static_cast<std::uint8_t>(tree);
  std::vector<Chunks> sources;
  const auto receive = [&](std::uint32_t child) {
    if (child == kNone) return;
    sources.push_back(plan.add_scratch(tree));
    plan.recv(child, sources.back(), channel);
  };
  receive(node.left);
  sources.push_back(input(tree));
  receive(node.right);
  if (sources.size() == 1) return input(tree);
  plan.reduce(sum, sources, finish);
  return sum;
}

void distribute(Builder& plan, const Node& node, std::uint32_t tree) {
  for (const std::uint32_t child : {node.left, node.right}) {
    if (child != kNone) plan.send(child, output(tree), static_cast<std::uint8_t>(tree));
  }
}

Schedule all_reduce(const Shape& shape, std::uint32_t rank) {
  Builder plan(kName, shape, rank, kTrees, kTrees);
  if (shape.ranks == 1) plan.copy(output(0, kTrees), input(0, kTrees));
  for (std::uint32_t tree = 0; tree < kTrees && shape.ranks > 1; ++tree) {
    const Node node = tree_node(tree, shape.ranks, rank);
    const Chunks sum = collect(plan, node, tree, output(tree), node.parent == kNone);
    if (node.parent != kNone) {
      plan.send(node.parent, sum, static_cast<std::uint8_t>(tree));
      plan.recv(node.parent, output(tree), static_cast<std::uint8_t>(tree));
    }
    distribute(plan, node, tree);
  }
  return std::move(plan).take();
}

// For a given root, the trees span the other ranks, and the root is the neighbour of both trees'
// roots: so no rank carries more than the data once. Ranks are counted from the root's successor.
struct Rooted {
  Shape shape;
  std::uint32_t rank_at(std::uint32_t position) const {
    return (shape.root + 1 + position) % shape.ranks;
  }
  /// The rank at the top of a tree.
  std::uint32_t top(std::uint32_t tree) const {
    const std::uint32_t size = shape.ranks - 1;
    return rank_at((subtree_root(0, size) + tree) % size);
  }
  /// Neighbours of a rank other than the root, as ranks; the root is the parent of a tree's top.
  Node node(std::uint32_t tree, std::uint32_t rank) const {
    const std::uint32_t position = (rank + shape.ranks - shape.root - 1) % shape.ranks;
    Node node = tree_node(tree, shape.ranks - 1, position);
    node.parent = node.parent == kNone ? shape.root : rank_at(node.parent);
    if (node.left != kNone) node.left = rank_at(node.left);
    if (node.right != kNone) node.right = rank_at(node.right);
    return node;
  }
};

Schedule broadcast(const Shape& shape, std::uint32_t rank) {
  const Rooted trees{shape};
  Builder plan(kName, shape, rank, kTrees, kTrees);
  const bool is_root = rank == shape.root;
  for (std::uint32_t tree = 0; tree < kTrees && shape.ranks > 1; ++tree) {
    if (is_root) {
      plan.send(trees.top(tree), input(tree), static_cast<std::uint8_t>(tree));
    } else {
      const Node node = trees.node(tree, rank);
      plan.recv(node.parent, output(tree), static_cast<std::uint8_t>(tree));
      distribute(plan, node, tree);
    }
  }
  if (is_root) plan.copy(output(0, kTrees), input(0, kTrees));
  return std::move(plan).take();
}

Schedule reduce(const Shape& shape, std::uint32_t rank) {
  const Rooted trees{shape};
  Builder plan(kName, shape, rank, kTrees, kTrees);
  const bool is_root = rank == shape.root;
  for (std::uint32_t tree = 0; tree < kTrees && shape.ranks > 1; ++tree) {
    if (is_root) {
      collect(plan, {.left = trees.top(tree)}, tree, output(tree), true);
      continue;
    }
    const Node node = trees.node(tree, rank);
    const bool leaf = node.left == kNone && node.right == kNone;
    const Chunks sum = leaf ? input(tree) : plan.add_scratch(tree);
    plan.send(node.parent, collect(plan, node, tree, sum, false), static_cast<std::uint8_t>(tree));
  }
  if (shape.ranks == 1) plan.copy(output(0, kTrees), input(0, kTrees));
  return std::move(plan).take();
}

constexpr Planner kPlanners[] = {
    {kName, Collective::all_reduce,
     "Up and down two trees with half of the data each: logarithmic depth at full bandwidth.",
     all_reduce},
    {kName, Collective::broadcast,
     "Down two trees with half of the data each: logarithmic depth at full bandwidth.", broadcast},
    {kName, Collective::reduce,
     "Up two trees with half of the data each: logarithmic depth at full bandwidth.", reduce},
};

}  // namespace

std::span<const Planner> double_binary_tree_planners() noexcept { return kPlanners; }

}  // namespace xylem::collectives
