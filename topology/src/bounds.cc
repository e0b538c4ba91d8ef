// SPDX-License-Identifier: Apache-2.0
//
// Upper bounds for all schedules, computed with maximum flows.
#include "flow.h"
#include "graph.h"

#include <algorithm>
#include <set>

namespace xylem::topology {
namespace {

/// A flow network with the edges of `graph` and two more vertices, for a source and a sink.
FlowNetwork network_of(const Graph& graph) {
  FlowNetwork network(graph.vertices() + 2);
  for (const Graph::Edge& edge : graph.edges()) network.add(edge.from, edge.to, edge.capacity);
  return network;
}

/// The total bandwidth from `group` to the other GPUs.
double outflow(const Graph& graph, const std::vector<bool>& group) {
  FlowNetwork network = network_of(graph);
  const std::uint32_t source = graph.vertices(), sink = source + 1;
  for (std::uint32_t gpu = 0; gpu < graph.gpus(); ++gpu) {
    if (group[gpu]) {
      network.add(source, gpu, Graph::kUnlimited);
    } else {
      network.add(gpu, sink, Graph::kUnlimited);
    }
  }
  return network.max_flow(source, sink);
}

/// Divides the GPUs into groups: two GPUs are in the same group if hops of a distance of at most
/// `reach` connect them. groups[i][g] says whether GPU g is in group i.
std::vector<std::vector<bool>> groups_within(const Graph& graph, std::uint32_t reach) {
  std::vector<std::vector<bool>> groups;
  std::vector<bool> is_in(graph.gpus(), false);
  for (std::uint32_t first = 0; first < graph.gpus(); ++first) {
    if (is_in[first]) continue;
    std::vector<bool>& group = groups.emplace_back(graph.gpus(), false);
    std::vector<std::uint32_t> open{first};
    is_in[first] = group[first] = true;
    while (!open.empty()) {
      const std::uint32_t at = open.back();
      open.pop_back();
      for (std::uint32_t next = 0; next < graph.gpus(); ++next) {
        if (is_in[next] || graph.route(at, next).empty() || graph.distance(at, next) > reach) {
          continue;
        }
        is_in[next] = group[next] = true;
        open.push_back(next);
      }
    }
  }
  return groups;
}

}  // namespace

double Graph::narrowest_cut() const {
  // The narrowest cut separates GPU 0 from some other GPU. One direction is enough, since each link
  // has the same bandwidth in both directions.
  FlowNetwork network = network_of(*this);
  double narrowest = kUnlimited;
  for (std::uint32_t gpu = 1; gpu < gpus_; ++gpu) {
    narrowest = std::min(narrowest, network.max_flow(0, gpu));
  }
  return narrowest;
}

// Assume that every GPU sends data at rate x. If the data of all GPUs can flow to each GPU, the
// rate x is possible. Otherwise x is lowered to the largest rate that the limiting cut allows, and
// the flow is computed again (Newton's method for a quotient of two sums).
std::optional<double> Graph::all_gather_bound() const {
  FlowNetwork network = network_of(*this);
  const std::uint32_t source = vertices();
  std::vector<std::uint32_t> supplies;
  double share = 0;
  for (const Edge& edge : edges_) {
    if (edge.capacity != kUnlimited) share += edge.capacity;
  }
  const double beyond = share + 1;
  supplies.reserve(gpus_);
  share = beyond;
  for (std::uint32_t gpu = 0; gpu < gpus_; ++gpu)
    supplies.push_back(network.add(source, gpu, share));
  for (std::uint32_t sink = 0; sink < gpus_; ++sink) {
    while (true) {
      const double flow = network.max_flow(source, sink);
      if (flow >= share * gpus_ * (1 - kRounding)) break;
      std::uint32_t senders = 0;
      for (std::uint32_t gpu = 0; gpu < gpus_; ++gpu) {
        senders += network.is_on_source_side(gpu) ? 1 : 0;
      }
      if (senders == 0) return std::nullopt;
      share = (flow - share * (gpus_ - senders)) / senders;
      for (const std::uint32_t supply : supplies) network.set_capacity(supply, share);
    }
  }
  if (share == beyond) return std::nullopt;
  return share * (gpus_ - 1);
}

std::optional<double> Graph::all_reduce_bound() const {
  // Until the return statement, `bound` is the data size divided by the time, since all the data
  // crosses each cut.
  double bound = narrowest_cut();
  std::set<std::uint32_t> reaches;
  for (std::uint32_t a = 0; a < gpus_; ++a) {
    for (std::uint32_t b = 0; b < a; ++b) reaches.insert(distance(a, b));
  }
  std::vector<std::vector<std::vector<bool>>> partitions;
  std::vector<std::vector<bool>> alone;
  for (std::uint32_t gpu = 0; gpu < gpus_; ++gpu) {
    alone.emplace_back(gpus_, false)[gpu] = true;
  }
  partitions.push_back(std::move(alone));
  for (const std::uint32_t reach : reaches) partitions.push_back(groups_within(*this, reach));
  for (const auto& partition : partitions) {
    if (partition.size() < 2) continue;
    double together = 0;
    for (const auto& group : partition) together += outflow(*this, group);
    bound = std::min(bound, together / (2.0 * static_cast<double>(partition.size() - 1)));
  }
  if (bound == kUnlimited) return std::nullopt;
  return bound * 2 * (gpus_ - 1) / gpus_;
}

}  // namespace xylem::topology
