// SPDX-License-Identifier: Apache-2.0
//
// Checks claim 4 of verify.h: no deadlock, however the data is sliced (wait_graph.h). A send and
// its receive count as one event, as in a rendezvous. With one slot for each (peer, channel), a
// message waits until the message before it on the same channel has been received. See
// docs/schedules.md.
#include "verify/world.h"
#include "xylem/collectives/wait_graph.h"

namespace xylem::collectives::verifier {
namespace {

// A message is one event, identified by its send.
Global event_of(const World& world, Global id) {
  return world.step(id).kind == StepKind::recv ? world.partner[id] : id;
}

WaitGraph waits(const World& world) {
  WaitGraph graph(world.owner.size());
  for (std::uint32_t rank = 0; rank < world.ranks.size(); ++rank) {
    const Pipeline& pipeline = world.pipelines[rank];
    const Global base = world.first[rank];
    for (StepId id = 0; id + 1 < pipeline.first_edge.size(); ++id) {
      for (std::uint32_t e = pipeline.first_edge[id]; e < pipeline.first_edge[id + 1]; ++e) {
        const Edge& edge = pipeline.edges[e];
        graph.add(event_of(world, base + edge.before), event_of(world, base + id), edge.kind);
      }
    }
  }
  for (const auto& [earlier, later] : world.lanes) {
    graph.add(event_of(world, earlier), event_of(world, later), EdgeKind::whole);
  }
  for (Global id = 0; id < world.signalled_by.size(); ++id) {
    if (world.step(id).kind == StepKind::wait) {
      graph.add(world.signalled_by[id], id, EdgeKind::whole);
    }
  }
  return graph;
}

}  // namespace

Status check_progress(const World& world) {
  return waits(world).check([&](Global id) { return world.describe(id); });
}

std::vector<Global> topological_order(const World& world) {
  const std::size_t steps = world.owner.size();
  std::vector<Global> order;
  order.reserve(steps);
  std::vector<bool> entered(steps, false);
  // A step, and whether all steps for which it waits are already in `order`.
  std::vector<std::pair<Global, bool>> stack;
  for (Global root = 0; root < steps; ++root) {
    stack.emplace_back(root, false);
    while (!stack.empty()) {
      const auto [id, complete] = stack.back();
      stack.pop_back();
      if (complete) {
        order.push_back(id);
        continue;
      }
      if (entered[id]) continue;
      entered[id] = true;
      stack.emplace_back(id, true);
      world.for_each_before(id, [&](Global before) {
        if (!entered[before]) stack.emplace_back(before, false);
      });
    }
  }
  return order;
}

}  // namespace xylem::collectives::verifier
