// SPDX-License-Identifier: Apache-2.0
//
// Mutations edit steps that contain their operands and predecessors. Afterwards the steps are
// packed into a schedule.
#include "model/mutations.h"

#include "xylem/collectives/alias.h"

#include <algorithm>

namespace xylem::collectives::model {
namespace {

using Random = std::mt19937_64;

struct OpenStep {
  Step step;
  bool has_target = false;
  Operand target{};  // Only valid if has_target.
  std::vector<Operand> sources;
  std::vector<StepId> after;

  std::vector<Operand*> operands() {
    std::vector<Operand*> all;
    if (has_target) all.push_back(&target);
    for (Operand& source : sources) all.push_back(&source);
    return all;
  }
};
using OpenSteps = std::vector<OpenStep>;

OpenSteps open(const Schedule& schedule) {
  OpenSteps steps;
  for (const Step& step : schedule.steps) {
    OpenStep open;
    open.step = step;
    if (step.target != kNone) {
      open.has_target = true;
      open.target = schedule.operands[step.target];
    }
    const auto sources = schedule.sources(step);
    open.sources.assign(sources.begin(), sources.end());
    const auto after = schedule.predecessors_of(step);
    open.after.assign(after.begin(), after.end());
    steps.push_back(std::move(open));
  }
  return steps;
}

void pack(const OpenSteps& steps, Schedule& schedule) {
  schedule.steps.clear();
  schedule.operands.clear();
  schedule.predecessors.clear();
  for (const OpenStep& open : steps) {
    Step step = open.step;
    step.target = step.first_source = kNone;
    if (open.has_target) {
      step.target = static_cast<std::uint32_t>(schedule.operands.size());
      schedule.operands.push_back(open.target);
    }
    if (!open.sources.empty())
      step.first_source = static_cast<std::uint32_t>(schedule.operands.size());
    schedule.operands.insert(schedule.operands.end(), open.sources.begin(), open.sources.end());
    step.source_count = static_cast<std::uint16_t>(open.sources.size());
    step.first_predecessor = static_cast<std::uint32_t>(schedule.predecessors.size());
    step.predecessor_count = static_cast<std::uint16_t>(open.after.size());
    schedule.predecessors.insert(schedule.predecessors.end(), open.after.begin(), open.after.end());
    schedule.steps.push_back(step);
  }
}

template <typename T>
T& pick(std::vector<T>& from, Random& random) {
  return from[random() % from.size()];
}

// Removes a step. If `inherit` is true, the successors of the step depend on its predecessors
// instead.
void remove(OpenSteps& steps, StepId id, bool inherit) {
  const std::vector<StepId> inherited = inherit ? steps[id].after : std::vector<StepId>();
  steps.erase(steps.begin() + id);
  for (OpenStep& step : steps) {
    const auto at = std::find(step.after.begin(), step.after.end(), id);
    if (at != step.after.end()) {
      step.after.erase(at);
      step.after.insert(step.after.end(), inherited.begin(), inherited.end());
    }
    std::sort(step.after.begin(), step.after.end());
    step.after.erase(std::unique(step.after.begin(), step.after.end()), step.after.end());
    for (StepId& before : step.after) before -= before > id ? 1 : 0;
  }
}

void duplicate(OpenSteps& steps, StepId id) {
  for (OpenStep& step : steps) {
    for (StepId& before : step.after) before += before > id ? 1 : 0;
  }
  const OpenStep twin = steps[id];
  steps.insert(steps.begin() + id, twin);
}

bool swap(OpenSteps& steps, Random& random) {
  if (steps.size() < 2) return false;
  const std::size_t distance = 1 + random() % std::min<std::size_t>(3, steps.size() - 1);
  const auto first = static_cast<StepId>(random() % (steps.size() - distance));
  const auto second = static_cast<StepId>(first + distance);
  std::swap(steps[first], steps[second]);
  for (OpenStep& step : steps) {
    for (StepId& before : step.after)
      before = before == first ? second : before == second ? first : before;
  }
  return true;
}

bool retarget_peer(OpenSteps& steps, std::uint32_t ranks, Random& random) {
  OpenStep& open = pick(steps, random);
  if (open.step.peer == kNone || ranks < 3) return false;
  open.step.peer =
      (open.step.peer + 1 + static_cast<std::uint32_t>(random() % (ranks - 1))) % ranks;
  if (open.step.kind == StepKind::put) open.target.rank = open.step.peer;
  return true;
}

// Moves one operand or all operands of a step by one chunk up or down.
bool shift_chunk(OpenStep& open, std::uint64_t choice) {
  auto operands = open.operands();
  if (operands.empty()) return false;
  const std::uint32_t by = choice % 2 == 0 ? 1 : std::uint32_t{0} - 1;
  const bool all = choice / 2 % 2 == 0;
  const std::size_t one = choice / 4 % operands.size();
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (all || i == one) operands[i]->chunk += by;
  }
  return true;
}

bool change_buffer(OpenSteps& steps, Random& random) {
  auto operands = pick(steps, random).operands();
  if (operands.empty()) return false;
  Operand& operand = *pick(operands, random);
  operand.buffer =
      static_cast<Buffer>((static_cast<unsigned>(operand.buffer) + 1 + random() % 2) % 3);
  return true;
}

bool change_op(OpenSteps& steps, Random& random) {
  OpenStep& open = pick(steps, random);
  switch (open.step.kind) {
    case StepKind::send:
      open.step.kind = StepKind::recv;
      open.has_target = true;
      open.target = open.sources[0];
      open.sources.clear();
      return true;
    case StepKind::recv:
      open.step.kind = StepKind::send;
      open.sources = {open.target};
      open.has_target = false;
      return true;
    case StepKind::copy:
      open.step.kind = StepKind::reduce;
      if (random() % 2 == 0) open.sources.insert(open.sources.begin(), open.target);
      open.step.finish = random() % 2 == 0;
      return true;
    case StepKind::reduce:
      switch (random() % 4) {
        case 0: open.step.finish = !open.step.finish; return true;
        case 1: std::reverse(open.sources.begin(), open.sources.end()); return true;
        case 2:
          open.sources.erase(open.sources.begin() +
                             static_cast<std::ptrdiff_t>(random() % open.sources.size()));
          return true;
        default:
          open.step.kind = StepKind::copy;
          open.step.finish = false;
          open.sources.resize(1);
          return true;
      }
    case StepKind::put: {
      open.step.kind = StepKind::copy;
      open.step.peer = kNone;
      open.target.rank = open.sources[0].rank;
      return true;
    }
    case StepKind::signal:
      open.step.kind = StepKind::wait;
      open.step.value = 1;
      return true;
    case StepKind::wait:
      if (open.step.value > 1 && random() % 2 == 0) {
        --open.step.value;
        return true;
      }
      open.step.kind = StepKind::signal;
      open.step.value = 0;
      return true;
  }
  return false;
}

bool drop_dependency(OpenSteps& steps, Random& random) {
  OpenStep& open = pick(steps, random);
  if (open.after.empty()) return false;
  open.after.erase(open.after.begin() + static_cast<std::ptrdiff_t>(random() % open.after.size()));
  return true;
}

bool add_dependency(OpenSteps& steps, Random& random) {
  const auto id = static_cast<StepId>(random() % steps.size());
  if (id == 0) return false;
  auto& after = steps[id].after;
  const auto before = static_cast<StepId>(random() % id);
  const auto at = std::lower_bound(after.begin(), after.end(), before);
  if (at != after.end() && *at == before) return false;
  after.insert(at, before);
  return true;
}

// Replaces a scratch chunk by another chunk of the same block, or an input chunk by the output
// chunk that may alias it.
bool widen_alias(OpenSteps& steps, const Schedule& schedule, Random& random) {
  // Pairs of a chunk and its replacement.
  std::vector<std::pair<Operand, Operand>> pairs;
  for (std::uint32_t a = 0; a < schedule.scratch.size(); ++a) {
    for (std::uint32_t b = 0; b < schedule.scratch.size(); ++b) {
      if (a == b || schedule.scratch[a] != schedule.scratch[b]) continue;
      pairs.push_back({{schedule.rank, a, Buffer::scratch}, {schedule.rank, b, Buffer::scratch}});
    }
  }
  for (std::uint32_t a = 0; a < chunk_count(schedule, schedule.rank, Buffer::output); ++a) {
    const auto input = aliased_input(schedule.shape, schedule.rank, a);
    if (!input) continue;
    pairs.push_back({{schedule.rank, *input, Buffer::input}, {schedule.rank, a, Buffer::output}});
    pairs.push_back({{schedule.rank, a, Buffer::output}, {schedule.rank, *input, Buffer::input}});
  }
  if (pairs.empty()) return false;
  const auto [from, to] = pick(pairs, random);
  const bool all = random() % 2 == 0;
  bool changed = false;
  const std::size_t start = random() % steps.size();
  for (std::size_t i = 0; i < steps.size() && (all || !changed); ++i) {
    for (Operand* operand : steps[(start + i) % steps.size()].operands()) {
      if (*operand != from || steps[(start + i) % steps.size()].step.chunk_count != 1) continue;
      *operand = to;
      changed = true;
    }
  }
  return changed;
}

bool overlaps(const OpenStep& writer, const OpenStep& reader) {
  if (!writer.has_target) return false;
  return std::any_of(reader.sources.begin(), reader.sources.end(), [&](const Operand& source) {
    return source.rank == writer.target.rank && source.buffer == writer.target.buffer &&
           source.chunk < writer.target.chunk + writer.step.chunk_count &&
           writer.target.chunk < source.chunk + reader.step.chunk_count;
  });
}

// True if `step` overwrites memory that `before` reads, in place or out of place, or if `before` is
// a wait. Then the dependency of `step` on `before` delays the overwriting until the memory has
// been read.
bool is_slot_wait(const OpenStep& step, const OpenStep& before, const Schedule& schedule) {
  if (before.step.kind == StepKind::wait || overlaps(step, before)) return true;
  if (!step.has_target || step.target.buffer != Buffer::output || step.step.chunk_count != 1)
    return false;
  const auto input = aliased_input(schedule.shape, schedule.rank, step.target.chunk);
  if (!input) return false;
  OpenStep overlaid = step;
  overlaid.target = Operand{schedule.rank, *input, Buffer::input};
  return overlaps(overlaid, before);
}

bool remove_slot_wait(OpenSteps& steps, const Schedule& schedule, Random& random) {
  // Pairs of a step and the index of one of its dependencies.
  std::vector<std::pair<StepId, std::size_t>> places;
  for (StepId id = 0; id < steps.size(); ++id) {
    for (std::size_t i = 0; i < steps[id].after.size(); ++i) {
      if (is_slot_wait(steps[id], steps[steps[id].after[i]], schedule)) places.emplace_back(id, i);
    }
  }
  if (places.empty()) return false;
  const auto [id, dependency] = pick(places, random);
  auto& after = steps[id].after;
  after.erase(after.begin() + static_cast<std::ptrdiff_t>(dependency));
  return true;
}

bool change_channel(OpenStep& open, std::uint32_t channels, std::uint64_t choice) {
  if (open.step.peer == kNone) return false;
  open.step.channel =
      static_cast<std::uint8_t>((open.step.channel + 1 + choice % (channels - 1)) % channels);
  return true;
}

// A step of a rank: the other end of a message or signal, at the same position on the lane.
struct Place {
  std::uint32_t rank;
  StepId id;
};

std::optional<Place> other_end(const std::vector<OpenSteps>& all, Place place) {
  const Step& step = all[place.rank][place.id].step;
  StepKind kind = StepKind::recv;
  switch (step.kind) {
    case StepKind::send: break;
    case StepKind::recv: kind = StepKind::send; break;
    case StepKind::signal: kind = StepKind::wait; break;
    case StepKind::wait: kind = StepKind::signal; break;
    default: return std::nullopt;
  }
  const auto on_lane = [&](const Step& other, StepKind which, std::uint32_t peer) {
    return other.kind == which && other.peer == peer && other.channel == step.channel;
  };
  std::uint32_t turn = 0;
  for (StepId id = 0; id < place.id; ++id) {
    if (on_lane(all[place.rank][id].step, step.kind, step.peer)) ++turn;
  }
  for (StepId id = 0; id < all[step.peer].size(); ++id) {
    if (on_lane(all[step.peer][id].step, kind, place.rank) && turn-- == 0)
      return Place{step.peer, id};
  }
  return std::nullopt;
}

bool mutate_one(std::vector<OpenSteps>& all,
                Place place,
                Mutation mutation,
                std::uint64_t choice,
                std::uint32_t channels) {
  OpenSteps& steps = all[place.rank];
  switch (mutation) {
    case Mutation::drop: remove(steps, place.id, choice % 2 == 0); return true;
    case Mutation::duplicate: duplicate(steps, place.id); return true;
    case Mutation::shift_chunk: return shift_chunk(steps[place.id], choice);
    case Mutation::change_channel: return change_channel(steps[place.id], channels, choice);
    default: return false;
  }
}

bool mutate_rank(OpenSteps& steps, const Schedule& victim, Mutation mutation, Random& random) {
  switch (mutation) {
    case Mutation::swap: return swap(steps, random);
    case Mutation::retarget_peer: return retarget_peer(steps, victim.shape.ranks, random);
    case Mutation::change_buffer: return change_buffer(steps, random);
    case Mutation::change_op: return change_op(steps, random);
    case Mutation::drop_dependency: return drop_dependency(steps, random);
    case Mutation::add_dependency: return add_dependency(steps, random);
    case Mutation::widen_alias: return widen_alias(steps, victim, random);
    case Mutation::remove_slot_wait: return remove_slot_wait(steps, victim, random);
    default: return false;
  }
}

}  // namespace

std::string_view name(Mutation mutation) {
  constexpr std::array<std::string_view, kMutations.size()> kNames = {
      "drop",          "duplicate",          "swap",
      "retarget peer", "shift chunk",        "change buffer",
      "change op",     "drop dependency",    "add dependency",
      "widen alias",   "remove a slot wait", "change channel"};
  return kNames[static_cast<std::size_t>(mutation)];
}

std::optional<std::vector<Schedule>> mutate(const std::vector<Schedule>& plan,
                                            Mutation mutation,
                                            std::mt19937_64& random) {
  std::vector<Schedule> mutant = plan;
  if (mutation == Mutation::change_channel) {
    for (Schedule& schedule : mutant) schedule.channels = std::max(schedule.channels, 2U);
  }
  std::vector<OpenSteps> all;
  for (const Schedule& schedule : mutant) all.push_back(open(schedule));
  const auto rank = static_cast<std::uint32_t>(random() % mutant.size());
  if (all[rank].empty()) return std::nullopt;
  bool changed = false;
  switch (mutation) {
    case Mutation::drop:
    case Mutation::duplicate:
    case Mutation::shift_chunk:
    case Mutation::change_channel: {
      const Place place{rank, static_cast<StepId>(random() % all[rank].size())};
      const auto other = random() % 2 == 0 ? other_end(all, place) : std::nullopt;
      const std::uint64_t choice = random();
      changed = mutate_one(all, place, mutation, choice, mutant[0].channels);
      if (other) changed |= mutate_one(all, *other, mutation, choice, mutant[0].channels);
      break;
    }
    default: changed = mutate_rank(all[rank], mutant[rank], mutation, random);
  }
  for (std::size_t i = 0; i < mutant.size(); ++i) pack(all[i], mutant[i]);
  if (!changed || mutant == plan) return std::nullopt;
  return mutant;
}

}  // namespace xylem::collectives::model
