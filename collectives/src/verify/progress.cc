// SPDX-License-Identifier: Apache-2.0
//
// Claim 4: no deadlock, however the data is sliced. A step has S slices, where S is unknown. An
// edge between steps connects slice k to slice k (slice edge), slice k to slice k + 1 or later (lag
// edge), or the last slice to the first (whole edge; also between neighbours on a channel with one
// slot). A cycle of slices corresponds to a cycle of steps. If a cycle of steps has no whole edge,
// it is a cycle of slices only if it has no lag edge either, since k grows along lag edges. If it
// has a whole edge, it is a cycle of slices for some large enough S. So there is no deadlock for
// any S exactly if no cycle of steps contains a whole edge, and none consists of slice edges alone.
// A send and its receive count as one event, as in a rendezvous. See docs/schedules.md.
#include "verify/world.h"

#include <fmt/format.h>

#include <algorithm>

namespace xylem::collectives::verifier {
namespace {

// A link from one event to an event that waits for it.
struct Link {
  Global to;
  EdgeKind kind;
};

struct Links {
  std::vector<std::uint32_t> first;
  std::vector<Link> to;

  std::span<const Link> of(Global id) const {
    return std::span(to).subspan(first[id], first[id + 1] - first[id]);
  }
};

// A message is one event, identified by its send.
Global event_of(const World& world, Global id) {
  return world.step(id).kind == StepKind::recv ? world.partner[id] : id;
}

template <typename Visit>
void for_each_link(const World& world, Visit&& visit) {
  for (std::uint32_t rank = 0; rank < world.ranks.size(); ++rank) {
    const Pipeline& pipeline = world.pipelines[rank];
    const Global base = world.first[rank];
    for (StepId id = 0; id + 1 < pipeline.first_edge.size(); ++id) {
      for (std::uint32_t e = pipeline.first_edge[id]; e < pipeline.first_edge[id + 1]; ++e) {
        const Edge& edge = pipeline.edges[e];
        visit(event_of(world, base + edge.before), event_of(world, base + id), edge.kind);
      }
    }
  }
  for (const auto& [earlier, later] : world.lanes) {
    visit(event_of(world, earlier), event_of(world, later), EdgeKind::whole);
  }
  for (Global id = 0; id < world.signalled_by.size(); ++id) {
    if (world.step(id).kind == StepKind::wait) visit(world.signalled_by[id], id, EdgeKind::whole);
  }
}

Links make_links(const World& world) {
  Links links;
  links.first.assign(world.owner.size() + 2, 0);
  for_each_link(world, [&](Global from, Global, EdgeKind) { ++links.first[from + 2]; });
  for (std::size_t i = 2; i < links.first.size(); ++i) links.first[i] += links.first[i - 1];
  links.to.resize(links.first.back());
  for_each_link(world, [&](Global from, Global to, EdgeKind kind) {
    links.to[links.first[from + 1]++] = {to, kind};
  });
  return links;
}

// Strongly connected components (Tarjan: "Depth-first search and linear graph algorithms", 1972),
// following only the kinds of links that `follow` accepts.
class Components {
 public:
  template <typename Follow>
  Components(const Links& links, std::size_t events, Follow&& follow)
      : component_(events, kNone), index_(events, kNone), low_(events, 0) {
    for (Global root = 0; root < events; ++root) {
      if (index_[root] == kNone) visit(links, root, follow);
    }
  }
  bool same(Global a, Global b) const { return component_[a] == component_[b]; }

 private:
  struct Frame {
    Global id;
    std::uint32_t next;
  };

  void enter(const Links& links, Global id) {
    index_[id] = low_[id] = counter_++;
    open_.push_back(id);
    frames_.push_back({id, links.first[id]});
  }

  void leave(Global id) {
    if (low_[id] == index_[id]) {
      Global member = kNone;
      do {
        member = open_.back();
        open_.pop_back();
        component_[member] = id;
      } while (member != id);
    }
    frames_.pop_back();
    if (!frames_.empty()) low_[frames_.back().id] = std::min(low_[frames_.back().id], low_[id]);
  }

  template <typename Follow>
  void visit(const Links& links, Global root, Follow&& follow) {
    enter(links, root);
    while (!frames_.empty()) {
      Frame& frame = frames_.back();
      const Global id = frame.id;
      if (frame.next == links.first[id + 1]) {
        leave(id);
        continue;
      }
      const Link& link = links.to[frame.next++];
      if (!follow(link.kind)) continue;
      if (index_[link.to] == kNone) {
        enter(links, link.to);
      } else if (component_[link.to] == kNone) {
        low_[id] = std::min(low_[id], index_[link.to]);
      }
    }
  }

  std::vector<Global> component_;  // A member of each event's component.
  std::vector<std::uint32_t> index_, low_;
  std::vector<Global> open_;
  std::vector<Frame> frames_;
  std::uint32_t counter_ = 0;
};

// The events on a shortest path from `from` to `to`, both included.
template <typename Follow>
std::vector<Global> shortest_way(const Links& links, Global from, Global to, Follow&& follow) {
  std::vector<Global> came_from(links.first.size(), kNone);
  std::vector<Global> queue = {from};
  came_from[from] = from;
  for (std::size_t i = 0; i < queue.size() && came_from[to] == kNone; ++i) {
    for (const Link& link : links.of(queue[i])) {
      if (!follow(link.kind) || came_from[link.to] != kNone) continue;
      came_from[link.to] = queue[i];
      queue.push_back(link.to);
    }
  }
  std::vector<Global> way = {to};
  while (way.back() != from) way.push_back(came_from[way.back()]);
  std::ranges::reverse(way);
  return way;
}

template <typename Follow>
Status deadlock(
    const World& world, const Links& links, Global from, const Link& link, Follow&& follow) {
  constexpr std::size_t kShown = 8;
  const std::vector<Global> cycle = shortest_way(links, link.to, from, follow);
  std::string text;
  for (std::size_t i = 0; i < cycle.size() && i < kShown; ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", then ", world.describe(cycle[i]));
  }
  if (cycle.size() > kShown) text += fmt::format(", and {} more", cycle.size() - kShown);
  return failure(
      Code::bad_schedule,
      fmt::format("progress: deadlock with one slot, for these wait for each other: {}", text));
}

}  // namespace

Status check_progress(const World& world) {
  const Links links = make_links(world);
  const std::size_t events = world.owner.size();
  const auto any = [](EdgeKind) { return true; };
  const auto slices_only = [](EdgeKind kind) { return kind == EdgeKind::slice; };
  const Components all(links, events, any);
  const Components aligned(links, events, slices_only);
  for (Global from = 0; from < events; ++from) {
    for (const Link& link : links.of(from)) {
      if (link.kind == EdgeKind::whole && all.same(from, link.to)) {
        return deadlock(world, links, from, link, any);
      }
      if (link.kind == EdgeKind::slice && aligned.same(from, link.to)) {
        return deadlock(world, links, from, link, slices_only);
      }
    }
  }
  return {};
}

std::vector<Global> topological_order(const World& world) {
  const std::size_t steps = world.owner.size();
  std::vector<Global> order;
  order.reserve(steps);
  std::vector<bool> entered(steps, false);
  // A step, and whether all steps before it are placed.
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
