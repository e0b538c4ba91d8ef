// SPDX-License-Identifier: Apache-2.0
//
// Two binary trees, each carrying half of the data, such that a rank with children in one tree is a
// leaf in the other. Every rank sends and receives the whole data once, in logarithmic depth
// (Sanders, Speck, Träff: "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
// 2009). Tree c carries block c on channel c.
#include "planners/registry.h"
#include "planners/trees.h"
#include "xylem/collectives/builder.h"

namespace xylem::collectives {
namespace {

constexpr std::string_view kName = "double_binary_tree";

Schedule all_reduce(const Shape& shape, std::uint32_t rank) {
  Builder plan(kName, shape, rank, kTrees, kTrees);
  if (shape.ranks == 1) plan.copy(output(0, kTrees), input(0, kTrees));
  for (std::uint8_t tree = 0; tree < kTrees && shape.ranks > 1; ++tree) {
    const Node node = tree_node(tree, shape.ranks, rank);
    const Chunks sum = collect(plan, node, tree, input(tree), output(tree), node.parent == kNone);
    if (node.parent != kNone) {
      plan.send(node.parent, sum, tree);
      plan.recv(node.parent, output(tree), tree);
    }
    distribute(plan, node, tree, output(tree));
  }
  return std::move(plan).take();
}

// The trees of broadcast and reduce. They span all ranks except the root, and the root is connected
// to the top ranks of both trees. So no rank sends or receives the data more than once. Position 0
// is the rank after the root.
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
  /// The neighbours of a rank other than the root, as ranks. The root is the parent of a tree's top
  /// rank.
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
  for (std::uint8_t tree = 0; tree < kTrees && shape.ranks > 1; ++tree) {
    if (is_root) {
      plan.send(trees.top(tree), input(tree), tree);
    } else {
      const Node node = trees.node(tree, rank);
      plan.recv(node.parent, output(tree), tree);
      distribute(plan, node, tree, output(tree));
    }
  }
  if (is_root) plan.copy(output(0, kTrees), input(0, kTrees));
  return std::move(plan).take();
}

Schedule reduce(const Shape& shape, std::uint32_t rank) {
  const Rooted trees{shape};
  Builder plan(kName, shape, rank, kTrees, kTrees);
  const bool is_root = rank == shape.root;
  for (std::uint8_t tree = 0; tree < kTrees && shape.ranks > 1; ++tree) {
    if (is_root) {
      collect(plan, {.left = trees.top(tree)}, tree, input(tree), output(tree), true);
      continue;
    }
    const Node node = trees.node(tree, rank);
    const bool leaf = node.left == kNone && node.right == kNone;
    const Chunks sum = leaf ? input(tree) : plan.add_scratch(tree);
    plan.send(node.parent, collect(plan, node, tree, input(tree), sum, false), tree);
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
