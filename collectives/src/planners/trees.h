// SPDX-License-Identifier: Apache-2.0
//
// The two trees of a double binary tree, and the steps that move data up and down in them (Sanders,
// Speck, Träff: "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009).
#pragma once

#include "xylem/collectives/builder.h"

#include <cstdint>
#include <vector>

namespace xylem::collectives {

inline constexpr std::uint8_t kTrees = 2;

/// The neighbours of a rank (or of a position) in one tree; kNone if there is none.
struct Node {
  std::uint32_t parent = kNone;
  std::uint32_t left = kNone;  ///< The child with the lower positions.
  std::uint32_t right = kNone;
};

/// The root of the subtree over [low, high): an odd position near the middle, or the only position.
/// Precondition: `low` is even.
inline std::uint32_t subtree_root(std::uint32_t low, std::uint32_t high) {
  const std::uint32_t size = high - low;
  return size == 1 ? low : low + ((size / 2) | 1);
}

/// The node of `position` in a binary search tree over the positions 0 … size − 1, in which even
/// positions are leaves.
inline Node search_tree(std::uint32_t size, std::uint32_t position) {
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

/// The node of `position` in tree 0 or 1. Tree 1 is tree 0 shifted by one position, so in tree 1
/// the odd positions are leaves.
inline Node tree_node(std::uint32_t tree, std::uint32_t size, std::uint32_t position) {
  Node node = search_tree(size, (position + size - tree) % size);
  for (std::uint32_t* at : {&node.parent, &node.left, &node.right}) {
    if (*at != kNone) *at = (*at + tree) % size;
  }
  return node;
}

/// Receives the data of the children and reduces left child, `own` and right child, in this order,
/// into `sum`. Returns the chunk with the result: `sum`, or `own` at a leaf, which has nothing to
/// reduce. `node` contains ranks. Tree c uses channel c.
inline Chunks collect(
    Builder& plan, const Node& node, std::uint8_t tree, Chunks own, Chunks sum, bool finish) {
  std::vector<Chunks> sources;
  const auto receive = [&](std::uint32_t child) {
    if (child == kNone) return;
    sources.push_back(plan.add_scratch(own.first));
    plan.recv(child, sources.back(), tree);
  };
  receive(node.left);
  sources.push_back(own);
  receive(node.right);
  if (sources.size() == 1) return own;
  plan.reduce(sum, sources, finish);
  return sum;
}

/// Sends `whole` to the children.
inline void distribute(Builder& plan, const Node& node, std::uint8_t tree, Chunks whole) {
  for (const std::uint32_t child : {node.left, node.right}) {
    if (child != kNone) plan.send(child, whole, tree);
  }
}

}  // namespace xylem::collectives
