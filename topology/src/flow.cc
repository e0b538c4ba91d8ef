// SPDX-License-Identifier: Apache-2.0
#include "flow.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace xylem::topology {
namespace {

/// Values below this share of the largest capacity are rounding errors.
constexpr double kNothing = 1e-13;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

std::uint32_t FlowNetwork::add(std::uint32_t from, std::uint32_t to, double capacity) {
  const auto arc = static_cast<std::uint32_t>(arcs_.size());
  arcs_.push_back({to, capacity, 0});
  arcs_.push_back({from, 0, 0});
  out_[from].push_back(arc);
  out_[to].push_back(arc + 1);
  return arc / 2;
}

double FlowNetwork::max_flow(std::uint32_t source, std::uint32_t sink) {
  double largest = 0;
  for (Arc& arc : arcs_) {
    arc.left = arc.capacity;
    if (!std::isinf(arc.capacity)) largest = std::max(largest, arc.capacity);
  }
  nothing_ = largest * kNothing;
  double flow = 0;
  while (find_levels(source, sink)) {
    next_.assign(out_.size(), 0);
    for (double more = kInfinity; (more = push(source, sink, kInfinity)) > 0;) {
      if (std::isinf(more)) return kInfinity;
      flow += more;
    }
  }
  return flow;
}

bool FlowNetwork::find_levels(std::uint32_t source, std::uint32_t sink) {
  level_.assign(out_.size(), -1);
  level_[source] = 0;
  std::vector<std::uint32_t> open{source};
  for (std::size_t i = 0; i < open.size(); ++i) {
    for (const std::uint32_t arc : out_[open[i]]) {
      const std::uint32_t to = arcs_[arc].to;
      if (level_[to] >= 0 || arcs_[arc].left <= nothing_) continue;
      level_[to] = level_[open[i]] + 1;
      open.push_back(to);
    }
  }
  return level_[sink] >= 0;
}

/// Depth-first search along increasing levels. The recursion is at most as deep as there are
/// levels.
double FlowNetwork::push(std::uint32_t at, std::uint32_t sink, double most) {
  if (at == sink) return most;
  for (; next_[at] < out_[at].size(); ++next_[at]) {
    const std::uint32_t arc = out_[at][next_[at]];
    const std::uint32_t to = arcs_[arc].to;
    if (level_[to] != level_[at] + 1 || arcs_[arc].left <= nothing_) continue;
    const double pushed = push(to, sink, std::min(most, arcs_[arc].left));
    if (pushed <= 0) continue;
    if (!std::isinf(arcs_[arc].left)) arcs_[arc].left -= pushed;
    arcs_[arc ^ 1].left += pushed;
    return pushed;
  }
  return 0;
}

}  // namespace xylem::topology
