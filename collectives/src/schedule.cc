// SPDX-License-Identifier: Apache-2.0
//
// Names of the elements of schedules, and the block in each chunk.
#include "xylem/collectives/schedule.h"

#include "xylem/base/check.h"
#include "xylem/base/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace xylem::collectives {
namespace {

constexpr std::array<std::string_view, kCollectiveCount> kCollectiveNames = {
    "all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter",
    "all_to_all", "gather", "scatter",   "barrier"};
constexpr std::array<std::string_view, 3> kBufferNames = {"input", "output", "scratch"};
constexpr std::array<std::string_view, 7> kStepNames = {"send", "recv",   "copy", "reduce",
                                                        "put",  "signal", "wait"};

template <std::size_t N, typename Enum>
std::string_view lookup(const std::array<std::string_view, N>& names, Enum value) noexcept {
  const auto index = static_cast<std::size_t>(value);
  return index < N ? names[index] : std::string_view("?");
}

}  // namespace

std::string_view name(Collective collective) noexcept {
  return lookup(kCollectiveNames, collective);
}
std::string_view name(Buffer buffer) noexcept { return lookup(kBufferNames, buffer); }
std::string_view name(StepKind kind) noexcept { return lookup(kStepNames, kind); }

Result<Collective> parse_collective(std::string_view text) {
  for (std::size_t i = 0; i < kCollectiveNames.size(); ++i) {
    if (text == kCollectiveNames[i]) return static_cast<Collective>(i);
  }
  text = text.substr(0, 40);
  const auto nearest = nearest_name(text, kCollectiveNames);
  return failure(Code::invalid_argument,
                 fmt::format("unknown collective '{}': use one of {}{}", text,
                             fmt::join(kCollectiveNames, ", "),
                             nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest)));
}

bool has_root(Collective collective) noexcept {
  return collective == Collective::reduce || collective == Collective::broadcast ||
         collective == Collective::gather || collective == Collective::scatter;
}

bool reduces(Collective collective) noexcept {
  return collective == Collective::all_reduce || collective == Collective::reduce ||
         collective == Collective::reduce_scatter;
}

std::uint32_t chunk_count(const Schedule& schedule, std::uint32_t rank, Buffer buffer) noexcept {
  if (buffer == Buffer::scratch) {
    return rank == schedule.rank ? static_cast<std::uint32_t>(schedule.scratch.size()) : 0;
  }
  const bool is_root = rank == schedule.shape.root;
  const std::uint32_t ranks = schedule.shape.ranks;
  const bool input = buffer == Buffer::input;
  switch (schedule.shape.collective) {
    case Collective::all_reduce: return schedule.blocks;
    case Collective::reduce: return input || is_root ? schedule.blocks : 0;
    case Collective::broadcast: return !input || is_root ? schedule.blocks : 0;
    case Collective::all_gather: return input ? 1 : ranks;
    case Collective::gather: return input ? 1 : (is_root ? ranks : 0);
    case Collective::reduce_scatter: return input ? ranks : 1;
    case Collective::scatter: return input ? (is_root ? ranks : 0) : 1;
    case Collective::all_to_all: return ranks;
    case Collective::barrier: return 0;
  }
  return 0;
}

std::uint32_t block_of(const Schedule& schedule, const Operand& operand) noexcept {
  if (operand.buffer == Buffer::scratch) {
    XYLEM_CHECK(operand.rank == schedule.rank, operand.rank, schedule.rank);
    return schedule.scratch[operand.chunk];
  }
  const bool input = operand.buffer == Buffer::input;
  switch (schedule.shape.collective) {
    case Collective::all_gather:
    case Collective::gather: return input ? operand.rank : operand.chunk;
    case Collective::reduce_scatter:
    case Collective::scatter: return input ? operand.chunk : operand.rank;
    case Collective::all_to_all: {
      const std::uint32_t ranks = schedule.shape.ranks;
      return input ? operand.rank * ranks + operand.chunk : operand.chunk * ranks + operand.rank;
    }
    default: return operand.chunk;
  }
}

bool is_exchange(const Schedule& schedule) {
  const auto is_outgoing = [](const Step& step) {
    return step.kind == StepKind::send || step.kind == StepKind::signal;
  };
  std::vector<std::pair<std::uint32_t, bool>> ways;
  for (const Step& step : schedule.steps) {
    if (step.kind == StepKind::put) return false;
    if (step.peer != kNone) ways.emplace_back(step.peer, is_outgoing(step));
    const auto may_follow = [&](StepId id) {
      const Step& before = schedule.steps[id];
      if (step.peer == kNone) return before.peer != kNone;
      return is_outgoing(before) && !is_outgoing(step);
    };
    if (!std::ranges::all_of(schedule.predecessors_of(step), may_follow)) return false;
  }
  std::ranges::sort(ways);
  return std::ranges::adjacent_find(ways) == ways.end();
}

}  // namespace xylem::collectives
