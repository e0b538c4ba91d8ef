// SPDX-License-Identifier: Apache-2.0
#include "verify_fusions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace xylem::execution {
namespace {

using collectives::Edge;
using collectives::EdgeKind;
using collectives::kNone;
using collectives::StepKind;

/// True if a step writes memory.
bool writes(const ProgramStep& step) {
  return step.bytes > 0 && (step.kind == StepKind::recv || step.kind == StepKind::copy ||
                            step.kind == StepKind::reduce);
}

bool follows(const Program& program, StepId id, Edge edge) {
  const auto edges = program.edges_of(program.steps[id]);
  return std::ranges::find(edges, edge) != edges.end();
}

/// Checks the claims of verify_program.h that concern the program of one rank alone.
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
    if (before > step) return false;  // Only lag edges lead to later steps.
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
        if (edge.kind == EdgeKind::lag) continue;  // The only slice is in the first window.
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

}  // namespace

Status verify_fusions(const Program& program, std::size_t rank) {
  return FusionChecker(program, rank).check();
}

}  // namespace xylem::execution
