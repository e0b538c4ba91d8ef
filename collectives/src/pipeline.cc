// SPDX-License-Identifier: Apache-2.0
//
// Derives the edges between slices from the dependencies between steps.
#include "xylem/collectives/pipeline.h"

#include <algorithm>

namespace xylem::collectives {
namespace {

// An operand of the step that is in this rank's own memory, so that `schedule` states its blocks
// even if it is in scratch. Null for signal and wait.
const Operand* own_operand(const Schedule& schedule, const Step& step) noexcept {
  switch (step.kind) {
    case StepKind::send:
    case StepKind::put: return &schedule.operands[step.first_source];
    case StepKind::recv:
    case StepKind::copy:
    case StepKind::reduce: return &schedule.operands[step.target];
    case StepKind::signal:
    case StepKind::wait: return nullptr;
  }
  return nullptr;
}

// How the steps use one scratch chunk.
struct Uses {
  StepId writer = kNone;
  bool ring = true;
  std::vector<StepId> readers;
};

bool follows_by_slice(const Schedule& schedule, StepId reader, StepId writer) {
  const auto before = schedule.predecessors_of(schedule.steps[reader]);
  return std::ranges::find(before, writer) != before.end() &&
         same_blocks(schedule, schedule.steps[writer], schedule.steps[reader]);
}

// Whether the schedule uses mapped memory. Its scratch then has no ring buffers, since other ranks
// may access it (pipeline.h).
bool uses_mapped_memory(const Schedule& schedule) {
  const auto one_sided = [](const Step& step) {
    return step.kind == StepKind::put || step.kind == StepKind::signal ||
           step.kind == StepKind::wait;
  };
  const auto foreign = [&](const Operand& operand) { return operand.rank != schedule.rank; };
  return std::ranges::any_of(schedule.steps, one_sided) ||
         std::ranges::any_of(schedule.operands, foreign);
}

std::vector<Uses> scratch_uses(const Schedule& schedule) {
  std::vector<Uses> uses(schedule.scratch.size());
  const auto name_all = [&](const Operand& operand, const Step& step, auto&& visit) {
    if (operand.buffer != Buffer::scratch) return;
    for (std::uint32_t i = 0; i < step.chunk_count; ++i) {
      Uses& chunk = uses[operand.chunk + i];
      if (step.chunk_count != 1) chunk.ring = false;
      visit(chunk);
    }
  };
  for (StepId id = 0; id < schedule.steps.size(); ++id) {
    const Step& step = schedule.steps[id];
    for (const Operand& source : schedule.sources(step)) {
      name_all(source, step, [&](Uses& chunk) { chunk.readers.push_back(id); });
    }
    if (step.target == kNone) continue;
    name_all(schedule.operands[step.target], step, [&](Uses& chunk) {
      if (chunk.writer != kNone) chunk.ring = false;
      chunk.writer = id;
    });
  }
  return uses;
}

}  // namespace

bool same_blocks(const Schedule& schedule, const Step& a, const Step& b) noexcept {
  if (a.chunk_count != b.chunk_count) return false;
  Operand left = a.chunk_count == 0 ? Operand() : *own_operand(schedule, a);
  Operand right = b.chunk_count == 0 ? Operand() : *own_operand(schedule, b);
  if (left == right) return true;
  for (std::uint32_t i = 0; i < a.chunk_count; ++i, ++left.chunk, ++right.chunk) {
    if (block_of(schedule, left) != block_of(schedule, right)) return false;
  }
  return true;
}

Pipeline pipeline(const Schedule& schedule) {
  Pipeline result;
  result.windowed.assign(schedule.scratch.size(), false);
  // lagging[s] lists the readers for which step s must wait before it writes its ring again.
  std::vector<std::vector<StepId>> lagging(schedule.steps.size());
  if (!uses_mapped_memory(schedule)) {
    const std::vector<Uses> uses = scratch_uses(schedule);
    for (std::size_t chunk = 0; chunk < uses.size(); ++chunk) {
      const Uses& use = uses[chunk];
      const bool ring =
          use.ring && use.writer != kNone && std::ranges::all_of(use.readers, [&](StepId reader) {
            return follows_by_slice(schedule, reader, use.writer);
          });
      if (!ring) continue;
      result.windowed[chunk] = true;
      auto& lag = lagging[use.writer];
      lag.insert(lag.end(), use.readers.begin(), use.readers.end());
    }
  }
  result.first_edge.reserve(schedule.steps.size() + 1);
  result.edges.reserve(schedule.predecessors.size());
  for (StepId id = 0; id < schedule.steps.size(); ++id) {
    const Step& step = schedule.steps[id];
    result.first_edge.push_back(static_cast<std::uint32_t>(result.edges.size()));
    for (const StepId before : schedule.predecessors_of(step)) {
      const bool aligned = same_blocks(schedule, schedule.steps[before], step);
      result.edges.push_back({before, aligned ? EdgeKind::slice : EdgeKind::whole});
    }
    for (const StepId reader : lagging[id]) result.edges.push_back({reader, EdgeKind::lag});
  }
  result.first_edge.push_back(static_cast<std::uint32_t>(result.edges.size()));
  return result;
}

std::uint64_t scratch_beyond_rings(const Schedule& schedule, const Counts& counts) {
  if (schedule.scratch.empty()) return 0;
  const Layout layout(schedule, counts);
  const auto windowed = pipeline(schedule).windowed;
  std::uint64_t bytes = 0;
  for (std::uint32_t chunk = 0; chunk < schedule.scratch.size(); ++chunk) {
    if (!windowed[chunk]) bytes += layout.extent(Buffer::scratch, chunk, 1).bytes;
  }
  return bytes;
}

}  // namespace xylem::collectives
