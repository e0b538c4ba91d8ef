// SPDX-License-Identifier: Apache-2.0
//
// WaitGraph: which steps wait for which, and whether there is a deadlock. The events of the graph
// are the steps of all ranks. All events have the same number S of slices, which is unknown. The
// edges of the graph are called Link; they are not the links between ranks.
#pragma once

#include "xylem/base/status.h"
#include "xylem/collectives/pipeline.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace xylem::collectives {

class WaitGraph {
 public:
  using Event = std::uint32_t;

  explicit WaitGraph(std::size_t events) : events_(events) {}

  /// Adds an edge: `after` waits for `before`. EdgeKind (pipeline.h) says which slices wait for
  /// which.
  void add(Event before, Event after, EdgeKind kind) { links_.push_back({before, after, kind}); }

  /// Looks for a deadlock: a circle of events that wait for each other, for some number of slices.
  /// Returns the events of a shortest circle through one edge of the deadlock. Each event waits for
  /// the event before it in the list, and the first for the last. The list is empty if no number of
  /// slices leads to a deadlock.
  ///
  /// A slice edge connects slice k to slice k, a lag edge slice k to slice k + 1 or later, and a
  /// whole edge the last slice to the first. A circle of slices is a circle of events. A circle of
  /// events without a whole edge is a circle of slices only if it has no lag edge either, since k
  /// grows along lag edges. A circle of events with a whole edge is a circle of slices if S is
  /// large enough. So there is no deadlock exactly if no circle of events contains a whole edge,
  /// and none consists of slice edges alone.
  std::vector<Event> find_deadlock() const;
  /// OK if there is no deadlock, otherwise `bad_schedule`. The message contains describe() of the
  /// first events of the circle.
  Status check(const std::function<std::string(Event)>& describe) const;

 private:
  struct Link {
    Event before, after;
    EdgeKind kind;
  };

  std::size_t events_;
  std::vector<Link> links_;
};

}  // namespace xylem::collectives
