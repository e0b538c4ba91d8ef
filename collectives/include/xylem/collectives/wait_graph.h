// SPDX-License-Identifier: Apache-2.0
//
// WaitGraph: which steps wait for which, and whether there is a deadlock. The events of the graph
// are the steps of all ranks. All events have the same number S of slices, which is unknown. Each
// edge of the graph is a Link; it has nothing to do with the links between ranks.
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

  /// `after` waits for `before`, as an edge of this kind says (pipeline.h).
  void add(Event before, Event after, EdgeKind kind) { links_.push_back({before, after, kind}); }

  /// Looks for events that wait for each other in a circle, for some number of slices. Returns a
  /// shortest circle through one edge of such a circle; in it, each event follows the event for
  /// which it waits. Empty if there is no deadlock for any number of slices.
  ///
  /// A slice edge connects slice k to slice k, a lag edge slice k to slice k + 1 or later, and a
  /// whole edge the last slice to the first. A circle of slices is a circle of events. A circle of
  /// events without a whole edge is a circle of slices only if it has no lag edge either, since k
  /// grows along lag edges. With a whole edge it is a circle of slices for a large enough S. So
  /// there is no deadlock exactly if no circle of events contains a whole edge, and none consists
  /// of slice edges alone.
  std::vector<Event> find_deadlock() const;
  /// OK if there is no deadlock, or else `bad_schedule`. Its message names events of a circle, as
  /// `describe` does.
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
