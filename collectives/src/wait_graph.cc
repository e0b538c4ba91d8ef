// SPDX-License-Identifier: Apache-2.0
#include "xylem/collectives/wait_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace xylem::collectives {
namespace {

using Event = WaitGraph::Event;

// An edge of the graph, stored at the event for which `to` waits.
struct Waiting {
  Event to;
  EdgeKind kind;
};

// For each event, the events that wait for it: those at [first[id], first[id + 1]) of `to`.
struct Links {
  std::vector<std::uint32_t> first;
  std::vector<Waiting> to;

  std::span<const Waiting> of(Event id) const {
    return std::span(to).subspan(first[id], first[id + 1] - first[id]);
  }
};

template <typename AllLinks>
Links sort_links(std::size_t events, const AllLinks& all) {
  Links links;
  links.first.assign(events + 2, 0);
  for (const auto& link : all) ++links.first[link.before + 2];
  for (std::size_t i = 2; i < links.first.size(); ++i) links.first[i] += links.first[i - 1];
  links.to.resize(links.first.back());
  for (const auto& link : all) {
    links.to[links.first[link.before + 1]++] = {link.after, link.kind};
  }
  return links;
}

// Strongly connected components (Tarjan: "Depth-first search and linear graph algorithms", 1972),
// following only edges of the kinds that `follow` accepts.
class Components {
 public:
  template <typename Follow>
  Components(const Links& links, std::size_t events, Follow&& follow)
      : component_(events, kNone), index_(events, kNone), low_(events, 0) {
    for (Event root = 0; root < events; ++root) {
      if (index_[root] == kNone) visit(links, root, follow);
    }
  }
  bool same(Event a, Event b) const { return component_[a] == component_[b]; }

 private:
  struct Frame {
    Event id;
    std::uint32_t next;
  };

  void enter(const Links& links, Event id) {
    index_[id] = low_[id] = counter_++;
    open_.push_back(id);
    frames_.push_back({id, links.first[id]});
  }

  void leave(Event id) {
    if (low_[id] == index_[id]) {
      Event member = kNone;
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
  void visit(const Links& links, Event root, Follow&& follow) {
    enter(links, root);
    while (!frames_.empty()) {
      Frame& frame = frames_.back();
      const Event id = frame.id;
      if (frame.next == links.first[id + 1]) {
        leave(id);
        continue;
      }
      const Waiting& link = links.to[frame.next++];
      if (!follow(link.kind)) continue;
      if (index_[link.to] == kNone) {
        enter(links, link.to);
      } else if (component_[link.to] == kNone) {
        low_[id] = std::min(low_[id], index_[link.to]);
      }
    }
  }

  std::vector<Event> component_;  // For each event, one event that identifies its component.
  std::vector<std::uint32_t> index_, low_;
  std::vector<Event> open_;
  std::vector<Frame> frames_;
  std::uint32_t counter_ = 0;
};

// The events on a shortest path from `from` to `to`, both included.
template <typename Follow>
std::vector<Event> shortest_way(const Links& links, Event from, Event to, Follow&& follow) {
  std::vector<Event> came_from(links.first.size(), kNone);
  std::vector<Event> queue = {from};
  came_from[from] = from;
  for (std::size_t i = 0; i < queue.size() && came_from[to] == kNone; ++i) {
    for (const Waiting& link : links.of(queue[i])) {
      if (!follow(link.kind) || came_from[link.to] != kNone) continue;
      came_from[link.to] = queue[i];
      queue.push_back(link.to);
    }
  }
  std::vector<Event> way = {to};
  while (way.back() != from) way.push_back(came_from[way.back()]);
  std::ranges::reverse(way);
  return way;
}

}  // namespace

std::vector<Event> WaitGraph::find_deadlock() const {
  const Links links = sort_links(events_, links_);
  const auto any = [](EdgeKind) { return true; };
  const auto slices_only = [](EdgeKind kind) { return kind == EdgeKind::slice; };
  const Components all(links, events_, any);
  const Components aligned(links, events_, slices_only);
  for (Event from = 0; from < events_; ++from) {
    for (const Waiting& link : links.of(from)) {
      if (link.kind == EdgeKind::whole && all.same(from, link.to)) {
        return shortest_way(links, link.to, from, any);
      }
      if (link.kind == EdgeKind::slice && aligned.same(from, link.to)) {
        return shortest_way(links, link.to, from, slices_only);
      }
    }
  }
  return {};
}

Status WaitGraph::check(const std::function<std::string(Event)>& describe) const {
  constexpr std::size_t kShown = 8;
  const std::vector<Event> circle = find_deadlock();
  if (circle.empty()) return {};
  std::string text;
  for (std::size_t i = 0; i < circle.size() && i < kShown; ++i) {
    text += (i == 0 ? "" : ", then ") + describe(circle[i]);
  }
  if (circle.size() > kShown) text += fmt::format(", and {} more", circle.size() - kShown);
  return failure(
      Code::bad_schedule,
      fmt::format("progress: deadlock with one slot, for these wait for each other: {}", text));
}

}  // namespace xylem::collectives
