// SPDX-License-Identifier: Apache-2.0
#include "xylem/execution/verify_program.h"

#include "verify_fusions.h"
#include "xylem/collectives/wait_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace xylem::execution {
namespace {

using collectives::Edge;
using collectives::EdgeKind;
using collectives::kNone;
using collectives::StepKind;
using collectives::WaitGraph;

/// True if a step is a send whose bytes may stay with the sender until the receiver has read them
/// there.
bool stays(const Program& program, const ProgramStep& step) {
  return step.kind == StepKind::send && step.bytes > 0 &&
         program.in_place_of(program.source_of(step)) != transport::InPlace::never;
}

/// Checks which steps wait for which other steps, on all ranks. Each step is an event of a
/// WaitGraph; a send and its receive are one event.
class Waits {
 public:
  using Event = WaitGraph::Event;

  explicit Waits(std::span<const Program* const> ranks) : ranks_(ranks) {
    first_.push_back(0);
    for (const Program* program : ranks) {
      first_.push_back(first_.back() + static_cast<Event>(program->steps.size()));
    }
    event_.resize(first_.back());
    released_by_.assign(first_.back(), kNone);
    for (Event step = 0; step < event_.size(); ++step) event_[step] = step;
  }

  Status check() {
    XYLEM_TRY(join_messages());
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) note_releases(rank);
    WaitGraph graph(event_.size());
    add_all(graph);
    XYLEM_TRY(graph.check([this](Event event) { return describe(event); }));
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank]->is_exchange) XYLEM_TRY(check_overtaking(rank));
    }
    return {};
  }

 private:
  /// One end of a lane: the rank, and the lane in its program.
  struct End {
    std::uint32_t rank = 0;
    const Lane* lane = nullptr;
  };

  Event at(std::uint32_t rank, StepId step) const { return first_[rank] + step; }
  std::span<const StepId> steps_of(const End& end) const {
    return ranks_[end.rank]->steps_of(*end.lane);
  }

  /// Finds both ends of each lane, and makes one event of each send and its receive.
  Status join_messages() {
    // The sending rank, the receiving rank, and the number of the lane.
    using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;
    std::map<Key, End> incoming;
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      for (const Lane& lane : ranks_[rank]->lanes) {
        if (!lane.outgoing) incoming[{lane.peer, rank, lane.number}] = {rank, &lane};
      }
    }
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      for (const Lane& lane : ranks_[rank]->lanes) {
        if (!lane.outgoing) continue;
        const auto found = incoming.find({rank, lane.peer, lane.number});
        if (found == incoming.end()) return unmatched(rank, lane);
        lanes_.emplace_back(End{rank, &lane}, found->second);
        XYLEM_TRY(join_lane(lanes_.back().first, lanes_.back().second));
        incoming.erase(found);
      }
    }
    if (incoming.empty()) return {};
    const auto& [key, end] = *incoming.begin();
    return unmatched(end.rank, *end.lane);
  }

  static Status unmatched(std::uint32_t rank, const Lane& lane) {
    return failure(
        Code::bad_schedule,
        fmt::format("progress: rank {}: nobody is at the other end of lane {} {} rank {}", rank,
                    lane.number, lane.outgoing ? "to" : "from", lane.peer));
  }

  /// Matches the messages of both ends of a lane by their ordinals. One wait may match several
  /// signals.
  Status join_lane(const End& from, const End& to) {
    const Program& sender = *ranks_[from.rank];
    const Program& receiver = *ranks_[to.rank];
    // The sends and signals, by the ordinal of their first message.
    std::map<std::uint32_t, StepId> sends;
    for (const StepId id : steps_of(from)) sends[sender.steps[id].ordinal] = id;
    for (const StepId id : steps_of(to)) {
      const ProgramStep& step = receiver.steps[id];
      const auto send = sends.find(step.ordinal);
      if (send == sends.end()) return unmatched(to.rank, *to.lane);
      if (step.kind == StepKind::wait) {
        const auto last = sends.lower_bound(step.ordinal + step.slices);
        for (auto signal = send; signal != last; ++signal) {
          signals_.emplace_back(at(from.rank, signal->second), at(to.rank, id));
        }
        sends.erase(send, last);
        continue;
      }
      if (sender.steps[send->second].slices != step.slices) return unmatched(to.rank, *to.lane);
      event_[at(to.rank, id)] = at(from.rank, send->second);
      sends.erase(send);
    }
    return sends.empty() ? Status() : unmatched(from.rank, *from.lane);
  }

  /// For each message that is received as a view, notes the step that reads the view. The view is
  /// released after this step.
  void note_releases(std::uint32_t rank) {
    const Program& program = *ranks_[rank];
    if (program.is_exchange) return;
    std::map<std::uint32_t, StepId> readers;  // For each view, the step that reads it.
    for (StepId id = 0; id < program.steps.size(); ++id) {
      for (const OperandLayout& source : operands_read_by(program, program.steps[id])) {
        if (source.view != kNone) readers[source.view] = id;
      }
    }
    for (StepId id = 0; id < program.steps.size(); ++id) {
      const ProgramStep& step = program.steps[id];
      if (step.kind != StepKind::recv || step.bytes == 0 || step.target.view == kNone) continue;
      released_by_[event_[at(rank, id)]] = at(rank, readers[step.target.view]);
    }
  }

  /// The event after which the slot of a message is free again.
  Event release_of(Event message) const {
    return released_by_[message] != kNone ? released_by_[message] : message;
  }

  void add_all(WaitGraph& graph) const {
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank]->is_exchange) {
        add_exchange(graph, rank);
      } else {
        add_rounds(graph, rank);
      }
    }
    for (const auto& [from, to] : lanes_) {
      add_order(graph, from);
      add_order(graph, to);
    }
    for (const auto& [signal, wait] : signals_) graph.add(signal, wait, EdgeKind::whole);
    // With one slot, slice k + 1 of a message waits until the slot of slice k is free.
    for (Event message = 0; message < released_by_.size(); ++message) {
      if (released_by_[message] == kNone) continue;
      graph.add(released_by_[message], message, EdgeKind::lag);
    }
  }

  void add_rounds(WaitGraph& graph, std::uint32_t rank) const {
    const Program& program = *ranks_[rank];
    for (StepId id = 0; id < program.steps.size(); ++id) {
      for (const Edge& edge : program.edges_of(program.steps[id])) {
        Event before = event_[at(rank, edge.before)];
        if (stays(program, program.steps[edge.before])) before = release_of(before);
        graph.add(before, event_[at(rank, id)], edge.kind);
      }
    }
  }

  /// Adds the order in an exchange: messages wait for nothing, and local steps wait for all
  /// messages.
  void add_exchange(WaitGraph& graph, std::uint32_t rank) const {
    const Program& program = *ranks_[rank];
    for (const StepId local : program.local_steps) {
      for (const StepId message : program.lane_steps) {
        graph.add(event_[at(rank, message)], at(rank, local), EdgeKind::whole);
      }
    }
  }

  /// With one slot, each message of a lane waits until the slot of the previous message is
  /// released.
  void add_order(WaitGraph& graph, const End& end) const {
    const auto steps = steps_of(end);
    for (std::size_t i = 1; i < steps.size(); ++i) {
      const Event before = event_[at(end.rank, steps[i - 1])];
      graph.add(release_of(before), event_[at(end.rank, steps[i])], EdgeKind::whole);
    }
  }

  /// In an exchange, a receive R does not wait for the send S whose memory R overwrites. This is
  /// safe only if the message of R cannot be sent before the message of S has arrived. To check
  /// this, an edge is added by which S waits for R. This edge closes a circle exactly if R follows
  /// S in any case.
  Status check_overtaking(std::uint32_t rank) const {
    const Program& program = *ranks_[rank];
    for (StepId id = 0; id < program.steps.size(); ++id) {
      const ProgramStep& step = program.steps[id];
      if (step.kind != StepKind::recv || step.bytes == 0) continue;
      for (const Edge& edge : program.edges_of(step)) {
        if (edge.kind == EdgeKind::lag) continue;
        WaitGraph graph(event_.size());
        add_all(graph);
        graph.add(event_[at(rank, id)], event_[at(rank, edge.before)], EdgeKind::whole);
        if (!graph.find_deadlock().empty()) continue;
        return failure(Code::bad_schedule,
                       fmt::format("exchange: rank {}, step {} (recv): may arrive before step {}, "
                                   "whose memory it overwrites, has been sent",
                                   rank, id, edge.before));
      }
    }
    return {};
  }

  std::string describe(Event event) const {
    const auto rank = std::ranges::upper_bound(first_, event) - first_.begin() - 1;
    const StepId step = event - first_[rank];
    return fmt::format("rank {}, step {} ({})", rank, step, name(ranks_[rank]->steps[step].kind));
  }

  std::span<const Program* const> ranks_;
  /// first_[rank] is the event of step 0 of the rank. The last element is the number of events.
  std::vector<Event> first_;
  /// event_[at(rank, step)] is the event of the step. A receive has the event of its send.
  std::vector<Event> event_;
  /// For each message, the event of the step that reads its view, or kNone.
  std::vector<Event> released_by_;
  std::vector<std::pair<End, End>> lanes_;
  std::vector<std::pair<Event, Event>> signals_;
};

}  // namespace

Status verify_program(std::span<const Program* const> ranks) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    XYLEM_TRY(verify_fusions(*ranks[rank], rank));
  }
  return Waits(ranks).check();
}

}  // namespace xylem::execution
