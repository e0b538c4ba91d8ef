// SPDX-License-Identifier: Apache-2.0
#include "xylem/execution/verify_program.h"

#include "xylem/collectives/wait_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
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

/// The operands that a step reads. None if it moves no bytes.
std::span<const OperandLayout> operands_read_by(const Program& program, const ProgramStep& step) {
  return step.bytes == 0 ? std::span<const OperandLayout>() : program.sources_of(step);
}

/// True if a step writes memory.
bool writes(const ProgramStep& step) {
  return step.bytes > 0 && (step.kind == StepKind::recv || step.kind == StepKind::copy ||
                            step.kind == StepKind::reduce);
}

/// True if a step is a send whose bytes may stay with the sender until the receiver has read them
/// there.
bool stays(const Program& program, const ProgramStep& step) {
  return step.kind == StepKind::send && step.bytes > 0 &&
         program.in_place_of(program.source_of(step)) != transport::InPlace::never;
}

bool follows(const Program& program, StepId id, Edge edge) {
  const auto edges = program.edges_of(program.steps[id]);
  return std::ranges::find(edges, edge) != edges.end();
}

/// Checks the claims that concern the program of one rank alone.
class FusionChecker {
 public:
  FusionChecker(const Program& program, std::size_t rank) : program_(program), rank_(rank) {}

  Status check() {
    XYLEM_TRY(check_rings());
    XYLEM_TRY(check_views());
    XYLEM_TRY(check_casts());
    return program_.is_exchange ? check_exchange() : Status();
  }

 private:
  template <typename... Args>
  Status reject(StepId id,
                std::string_view claim,
                fmt::format_string<Args...> rule,
                Args&&... args) const {
    return failure(Code::bad_schedule, fmt::format("{}: rank {}, step {} ({}): {}", claim, rank_,
                                                   id, name(program_.steps[id].kind),
                                                   fmt::format(rule, std::forward<Args>(args)...)));
  }

  // ---- rings ----

  /// A step that writes into a ring must wait until the previous slice in the same place has been
  /// read.
  Status check_rings() const {
    for (StepId writer = 0; writer < program_.steps.size(); ++writer) {
      const ProgramStep& step = program_.steps[writer];
      if (!writes(step) || !step.target.ring) continue;
      for (StepId id = 0; id < program_.steps.size(); ++id) {
        const auto reads = operands_read_by(program_, program_.steps[id]);
        const bool reads_it = std::ranges::any_of(
            reads, [&](const OperandLayout& read) { return read.same_memory(step.target); });
        if (reads_it && !follows(program_, writer, {id, EdgeKind::lag})) {
          return reject(writer, "rings", "does not wait until step {} has read what was there", id);
        }
      }
    }
    return {};
  }

  // ---- views ----

  Status check_views() {
    std::map<std::uint32_t, StepId> receives;  // For each view, the receive that fills it.
    for (StepId id = 0; id < program_.steps.size(); ++id) {
      const ProgramStep& step = program_.steps[id];
      if (!writes(step) || step.target.view == kNone) continue;
      if (step.kind != StepKind::recv || !step.target.ring) {
        return reject(id, "views", "only a receive into a ring has views of what arrives");
      }
      const std::uint32_t view = step.target.view;
      if (view % program_.window != 0 || view + program_.window > program_.view_count) {
        return reject(id, "views", "view {} of {} in a window of {}", view, program_.view_count,
                      program_.window);
      }
      if (!receives.emplace(view, id).second) {
        return reject(id, "views", "view {} is step {}'s, too", view, receives[view]);
      }
    }
    XYLEM_TRY(check_that_views_are_received(receives));
    for (const auto& [view, receive] : receives) XYLEM_TRY(check_reader(receive));
    return {};
  }

  Status check_that_views_are_received(const std::map<std::uint32_t, StepId>& receives) const {
    for (StepId id = 0; id < program_.steps.size(); ++id) {
      const ProgramStep& step = program_.steps[id];
      for (const OperandLayout& source : operands_read_by(program_, step)) {
        if (source.view == kNone) continue;
        if (!step.is_computed()) return reject(id, "views", "only computed steps read views");
        const auto receive = receives.find(source.view);
        if (receive == receives.end()) {
          return reject(id, "views", "no receive fills view {}", source.view);
        }
        if (!source.same_memory(program_.steps[receive->second].target)) {
          return reject(id, "views", "view {} is of other memory than what it stands for",
                        source.view);
        }
      }
    }
    return {};
  }

  /// Checks the step that reads the views of a receive.
  Status check_reader(StepId receive) const {
    const ProgramStep& step = program_.steps[receive];
    StepId reader = kNone;
    for (StepId id = 0; id < program_.steps.size(); ++id) {
      const ProgramStep& other = program_.steps[id];
      if (id != receive && writes(other) && other.target.same_memory(step.target)) {
        return reject(id, "views", "writes the memory that step {} shows by a view", receive);
      }
      for (const OperandLayout& source : operands_read_by(program_, other)) {
        if (!source.same_memory(step.target)) continue;
        if (source.view != step.target.view || reader != kNone) {
          return reject(id, "views", "reads the memory that step {} shows by a view to step {}",
                        receive, reader);
        }
        reader = id;
      }
    }
    if (reader == kNone) return reject(receive, "views", "nobody reads what it shows");
    if (program_.steps[reader].bytes != step.bytes ||
        !follows(program_, reader, {receive, EdgeKind::slice})) {
      return reject(reader, "views", "does not follow step {}, whose view it reads, by slices",
                    receive);
    }
    return {};
  }

  // ---- casts ----

  Status check_casts() {
    std::vector<std::set<StepId>> members(program_.casts.size());
    for (StepId id = 0; id < program_.steps.size(); ++id) {
      const ProgramStep& step = program_.steps[id];
      if (step.is_unawaited && (step.kind != StepKind::copy || step.successor_count > 0)) {
        return reject(id, "casts", "only a copy that no step follows is unawaited");
      }
      if (step.cast == kNone) continue;
      if (step.cast >= program_.casts.size()) return reject(id, "casts", "cast {}", step.cast);
      members[step.cast].insert(id);
    }
    for (std::uint32_t cast = 0; cast < program_.casts.size(); ++cast) {
      XYLEM_TRY(check_cast(cast, std::move(members[cast])));
    }
    return {};
  }

  Status check_cast(std::uint32_t index, std::set<StepId> members) {
    const Cast& cast = program_.casts[index];
    const auto sends = program_.sends_of(cast);
    if (sends.empty()) return failure(Code::bad_schedule, "casts: a cast without sends");
    const ProgramStep& model = program_.steps[sends.front()];
    for (const StepId id : sends) {
      const ProgramStep& send = program_.steps[id];
      if (send.kind != StepKind::send || send.bytes == 0 || members.erase(id) == 0) {
        return reject(id, "casts", "is no send of cast {}, or is there twice", index);
      }
      if (send.bytes != model.bytes ||
          !program_.source_of(send).same_memory(program_.source_of(model))) {
        return reject(id, "casts", "sends other bytes than the rest of cast {}", index);
      }
    }
    if (cast.copy != kNone) {
      const ProgramStep& copy = program_.steps[cast.copy];
      if (members.erase(cast.copy) == 0 || !copy.is_unawaited || copy.bytes != model.bytes ||
          !program_.source_of(copy).same_memory(program_.source_of(model))) {
        return reject(cast.copy, "casts", "is no unawaited copy of what cast {} sends", index);
      }
    }
    for (const StepId maker : members) XYLEM_TRY(check_maker(maker, model, sends));
    return {};
  }

  /// Checks a step that makes the bytes that a cast sends.
  Status check_maker(StepId maker, const ProgramStep& model, std::span<const StepId> sends) {
    const ProgramStep& step = program_.steps[maker];
    if (!writes(step) || step.is_unawaited || step.bytes != model.bytes ||
        !step.target.same_memory(program_.source_of(model))) {
      return reject(maker, "casts", "does not make what cast {} sends", step.cast);
    }
    for (const StepId send : sends) {
      if (!comes_after(send, maker) && !comes_after(maker, send)) {
        return reject(maker, "casts", "is not ordered with step {}, which sends what it makes",
                      send);
      }
    }
    return {};
  }

  /// True if slice k of a step waits for slice k of step `before`, at this rank.
  bool comes_after(StepId step, StepId before) {
    if (before > step) return false;  // Except for lag edges, steps wait only for earlier steps.
    std::vector<bool> seen(program_.steps.size(), false);
    std::vector<StepId> left = {step};
    while (!left.empty()) {
      const StepId id = left.back();
      left.pop_back();
      if (id == before) return true;
      if (seen[id]) continue;
      seen[id] = true;
      for (const Edge& edge : program_.edges_of(program_.steps[id])) {
        if (edge.kind != EdgeKind::lag) left.push_back(edge.before);
      }
    }
    return false;
  }

  // ---- exchange ----

  Status check_exchange() const {
    if (program_.in_place != transport::InPlace::never) {
      return failure(Code::bad_schedule,
                     fmt::format("exchange: rank {}: what it sends may not stay with it, since its "
                                 "local steps begin when all sends have ended",
                                 rank_));
    }
    std::set<std::pair<std::uint32_t, bool>> ways;
    for (StepId id = 0; id < program_.steps.size(); ++id) {
      const ProgramStep& step = program_.steps[id];
      if (step.slices != 1) return reject(id, "exchange", "has {} slices", step.slices);
      const bool is_sent = step.lane != kNone && program_.lanes[step.lane].outgoing;
      if (step.lane != kNone && !ways.emplace(program_.lanes[step.lane].peer, is_sent).second) {
        return reject(id, "exchange", "is a second message that way");
      }
      for (const Edge& edge : program_.edges_of(step)) {
        if (edge.kind == EdgeKind::lag) continue;  // The first window of slices does not wait.
        const ProgramStep& before = program_.steps[edge.before];
        const bool follows_message = before.lane != kNone;
        const bool follows_send = follows_message && program_.lanes[before.lane].outgoing;
        const bool is_allowed = step.lane == kNone ? follows_message : !is_sent && follows_send;
        if (!is_allowed) return reject(id, "exchange", "waits for step {}", edge.before);
      }
    }
    return {};
  }

  const Program& program_;
  const std::size_t rank_;
};

/// Which steps of all ranks wait for which. Each step is an event, but a send and its receive are
/// one event.
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
    if (const auto circle = graph.find_deadlock(); !circle.empty()) return deadlock(circle);
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

  /// Matches the messages of both ends by their place in the lane. One wait may match several
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

  /// Notes for each message that is viewed the step that reads the view, and so releases it.
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
    // Slice k + 1 of a message waits for the slot of slice k.
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

  /// With one slot, each message of a lane waits until the slot of the previous one is released.
  void add_order(WaitGraph& graph, const End& end) const {
    const auto steps = steps_of(end);
    for (std::size_t i = 1; i < steps.size(); ++i) {
      const Event before = event_[at(end.rank, steps[i - 1])];
      graph.add(release_of(before), event_[at(end.rank, steps[i])], EdgeKind::whole);
    }
  }

  /// In an exchange, a receive does not wait for the send whose memory it overwrites. This is safe
  /// only if its message cannot be sent before that send has arrived. To check this, an edge is
  /// added by which the send waits for the receive: exactly if the receive must follow the send
  /// anyway, this edge closes a circle.
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

  Status deadlock(const std::vector<Event>& circle) const {
    constexpr std::size_t kShown = 8;
    std::string text;
    for (std::size_t i = 0; i < circle.size() && i < kShown; ++i) {
      const auto rank = static_cast<std::uint32_t>(std::ranges::upper_bound(first_, circle[i]) -
                                                   first_.begin() - 1);
      const StepId step = circle[i] - first_[rank];
      text += fmt::format("{}rank {}, step {} ({})", i == 0 ? "" : ", then ", rank, step,
                          name(ranks_[rank]->steps[step].kind));
    }
    if (circle.size() > kShown) text += fmt::format(", and {} more", circle.size() - kShown);
    return failure(
        Code::bad_schedule,
        fmt::format("progress: deadlock with one slot, for these wait for each other: {}", text));
  }

  std::span<const Program* const> ranks_;
  /// The event of step 0 of each rank; at the end, the number of events.
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
    XYLEM_TRY(FusionChecker(*ranks[rank], rank).check());
  }
  return Waits(ranks).check();
}

}  // namespace xylem::execution
