// SPDX-License-Identifier: Apache-2.0
//
// Checks claim 5 of verify.h between schedules, and combines the schedules. The k-th send of a
// (source, target, channel) matches the k-th receive, and both move the same blocks. A wait for k
// needs the k-th signal. Every signal is awaited, so the value of the counter at the start of the
// next call is known.
#include "verify/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace xylem::collectives::verifier {
namespace {

// A step and its lane, that is, its (source, target, channel).
struct OnLane {
  std::uint64_t lane;
  Global id;
};

class Joiner {
 public:
  Joiner(std::span<const Schedule> ranks, const Symmetry* symmetry) {
    world_.ranks = ranks;
    world_.symmetry = symmetry;
  }

  Result<World> join() && {
    number_steps();
    for (auto* entries : {&sends_, &recvs_, &signals_, &waits_}) {
      // Steps are numbered in list order, so sorting by (lane, id) keeps the list order within a
      // lane.
      std::ranges::sort(*entries, [](const OnLane& a, const OnLane& b) {
        return std::tie(a.lane, a.id) < std::tie(b.lane, b.id);
      });
    }
    XYLEM_TRY(match_messages());
    XYLEM_TRY(match_signals());
    for (const auto* entries : {&recvs_, &signals_, &waits_}) chain(*entries);
    for (const Schedule& schedule : world_.ranks) world_.pipelines.push_back(pipeline(schedule));
    XYLEM_TRY(check_rings());
    return std::move(world_);
  }

 private:
  void number_steps() {
    world_.first.push_back(0);
    for (const Schedule& schedule : world_.ranks) {
      for (const Step& step : schedule.steps) {
        const auto id = static_cast<Global>(world_.owner.size());
        world_.owner.push_back(schedule.rank);
        if (auto* entries = entries_of(step.kind)) {
          entries->push_back({lane_of(schedule.rank, step), id});
        }
      }
      world_.first.push_back(static_cast<Global>(world_.owner.size()));
    }
    world_.partner.assign(world_.owner.size(), kNone);
    world_.signalled_by.assign(world_.owner.size(), kNone);
  }

  // The key of a lane, equal at both ends: the representatives of source and target, the shift from
  // source to target, and the channel.
  std::uint64_t lane_of(std::uint32_t rank, const Step& step) const {
    const bool outgoing = step.kind == StepKind::send || step.kind == StepKind::signal;
    const std::uint64_t peer = world_.index_of(step.peer);
    std::uint32_t shift = world_.shift_of(step.peer);
    if (!outgoing && shift != 0) shift = world_.symmetry->inverse(shift);
    const std::uint64_t source = outgoing ? rank : peer;
    const std::uint64_t target = outgoing ? peer : rank;
    return (source << 48) | (target << 32) | (std::uint64_t{shift} << 16) | step.channel;
  }

  std::vector<OnLane>* entries_of(StepKind kind) {
    switch (kind) {
      case StepKind::send: return &sends_;
      case StepKind::recv: return &recvs_;
      case StepKind::signal: return &signals_;
      case StepKind::wait: return &waits_;
      default: return nullptr;
    }
  }

  Status reject(Global id, std::string_view rule) const {
    return failure(Code::bad_schedule, fmt::format("form: {}: {}", world_.describe(id), rule));
  }

  Status match_messages() {
    for (std::size_t i = 0; i < std::max(sends_.size(), recvs_.size()); ++i) {
      const bool has_send = i < sends_.size();
      const bool has_recv = i < recvs_.size();
      if (has_send && (!has_recv || sends_[i].lane < recvs_[i].lane)) {
        return reject(sends_[i].id, "has no receive at its peer");
      }
      if (has_recv && (!has_send || recvs_[i].lane < sends_[i].lane)) {
        return reject(recvs_[i].id, "has no send at its peer");
      }
      const Global send = sends_[i].id;
      const Global recv = recvs_[i].id;
      if (!move_same_blocks(send, recv)) {
        return reject(send, fmt::format("moves other blocks than the receive that it meets, {}",
                                        world_.describe(recv)));
      }
      world_.partner[send] = recv;
      world_.partner[recv] = send;
    }
    return {};
  }

  bool move_same_blocks(Global send, Global recv) const {
    const Step& from = world_.step(send);
    const Step& to = world_.step(recv);
    if (from.chunk_count != to.chunk_count) return false;
    Operand source = world_.schedule(send).operands[from.first_source];
    Operand target = world_.schedule(recv).operands[to.target];
    const std::uint32_t shift = world_.shift_of(from.peer);
    if (shift != 0) {
      // The blocks of the operands ascend at both ends, so comparing the first blocks is enough.
      return block_of(world_.schedule(send), source) ==
             first_image(block_of(world_.schedule(recv), target), to.chunk_count, shift);
    }
    for (std::uint32_t i = 0; i < from.chunk_count; ++i, ++source.chunk, ++target.chunk) {
      if (block_of(world_.schedule(send), source) != block_of(world_.schedule(recv), target)) {
        return false;
      }
    }
    return true;
  }

  std::uint32_t first_image(std::uint32_t block, std::uint32_t count, std::uint32_t shift) const {
    std::uint32_t first = kNone;
    for (std::uint32_t i = 0; i < count; ++i) {
      first = std::min(first, world_.symmetry->image_of_block(world_.shape(), block + i, shift));
    }
    return first;
  }

  // Matches the waits for each counter with the signals that increase it.
  Status match_signals() {
    auto wait = waits_.begin();
    for (auto signal = signals_.begin(); signal != signals_.end() || wait != waits_.end();) {
      const std::uint64_t lane = signal == signals_.end() ? wait->lane
                                 : wait == waits_.end()   ? signal->lane
                                                          : std::min(signal->lane, wait->lane);
      const auto first = signal;
      while (signal != signals_.end() && signal->lane == lane) {
        if (signal != first) world_.signalled_by[signal->id] = std::prev(signal)->id;
        ++signal;
      }
      const auto count = static_cast<std::uint64_t>(signal - first);
      std::uint64_t highest = 0;
      for (; wait != waits_.end() && wait->lane == lane; ++wait) {
        const std::uint32_t value = world_.step(wait->id).value;
        if (value > count)
          return reject(wait->id, fmt::format("its peer signals {} times only", count));
        world_.signalled_by[wait->id] = first[value - 1].id;
        highest = std::max<std::uint64_t>(highest, value);
      }
      if (highest < count)
        return reject(first[static_cast<std::ptrdiff_t>(highest)].id, "is never awaited");
    }
    return {};
  }

  void chain(const std::vector<OnLane>& entries) {
    for (std::size_t i = 1; i < entries.size(); ++i) {
      if (entries[i - 1].lane == entries[i].lane) {
        world_.lanes.emplace_back(entries[i - 1].id, entries[i].id);
      }
    }
  }

  // A chunk that is a ring buffer never has all its slices in memory, so other ranks must not
  // access it.
  Status check_rings() const {
    for (Global id = 0; id < world_.owner.size(); ++id) {
      const Schedule& schedule = world_.schedule(id);
      const Step& step = world_.step(id);
      const auto named_ring = [&](const Operand& operand) {
        if (operand.rank == schedule.rank || operand.buffer != Buffer::scratch) return false;
        const auto& windowed = world_.pipelines[operand.rank].windowed;
        const auto begin = windowed.begin() + operand.chunk;
        return std::find(begin, begin + step.chunk_count, true) != begin + step.chunk_count;
      };
      const auto sources = schedule.sources(step);
      const bool target_is_ring =
          step.target != kNone && named_ring(schedule.operands[step.target]);
      if (target_is_ring || std::ranges::any_of(sources, named_ring)) {
        return reject(id, "names scratch of another rank that is a ring there (see pipeline.h)");
      }
    }
    return {};
  }

  World world_;
  std::vector<OnLane> sends_, recvs_, signals_, waits_;
};

}  // namespace

Result<World> join(std::span<const Schedule> ranks, const Symmetry* symmetry) {
  std::size_t steps = 0;
  for (const Schedule& schedule : ranks) steps += schedule.steps.size();
  if (steps >= kNone)
    return failure(Code::bad_schedule, fmt::format("form: {} steps in all", steps));
  return Joiner(ranks, symmetry).join();
}

}  // namespace xylem::collectives::verifier
