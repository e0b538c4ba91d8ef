// SPDX-License-Identifier: Apache-2.0
//
// Checks claim 5 of verify.h, for one schedule at a time. After this check, every index can be used
// without further checks.
#include "verify/world.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace xylem::collectives::verifier {
namespace {

constexpr std::uint32_t kMaxParts = 1
                                    // Limits the memory needed to check an untrusted schedule.
                                    << 20;

bool has_peer(StepKind kind) { return kind != StepKind::copy && kind != StepKind::reduce; }
bool moves_data(StepKind kind) { return kind != StepKind::signal && kind != StepKind::wait; }
bool has_target(StepKind kind) { return moves_data(kind) && kind != StepKind::send; }

// Checks the schedule of one rank. Operands may name chunks of other ranks, so it needs all
// schedules.
class FormChecker {
 public:
  FormChecker(std::span<const Schedule> ranks, std::uint32_t rank)
      : ranks_(ranks), schedule_(ranks[rank]), count_(schedule_.shape.ranks), seen_(0) {}

  Status check() {
    XYLEM_TRY(check_header());
    for (StepId id = 0; id < schedule_.steps.size(); ++id) {
      id_ = id;
      step_ = &schedule_.steps[id];
      XYLEM_TRY(check_fields());
      XYLEM_TRY(check_predecessors());
      if (moves_data(step_->kind)) XYLEM_TRY(check_operands());
    }
    return {};
  }

 private:
  template <typename... Args>
  Status reject(fmt::format_string<Args...> rule, Args&&... args) const {
    return failure(Code::bad_schedule,
                   fmt::format("form: rank {}, step {} ({}): {}", schedule_.rank, id_,
                               name(step_->kind), fmt::format(rule, std::forward<Args>(args)...)));
  }

  Status check_header() const {
    const Schedule& lead = ranks_[0];
    const auto index = static_cast<std::size_t>(&schedule_ - ranks_.data());
    const auto wrong = [&](std::string rule) {
      return failure(Code::bad_schedule, fmt::format("form: schedule {}: {}", index, rule));
    };
    if (schedule_.rank != index) return wrong(fmt::format("says it is rank {}'s", schedule_.rank));
    if (schedule_.algorithm != lead.algorithm || schedule_.shape != lead.shape ||
        schedule_.blocks != lead.blocks || schedule_.channels != lead.channels) {
      return wrong("algorithm, shape, blocks or channels differ from those of rank 0");
    }
    const auto outside = std::ranges::find_if(
        schedule_.scratch, [&](std::uint32_t block) { return block >= schedule_.blocks; });
    if (outside != schedule_.scratch.end()) {
      return wrong(fmt::format("scratch chunk {} holds block {} of {}",
                               outside - schedule_.scratch.begin(), *outside, schedule_.blocks));
    }
    return {};
  }

  Status check_fields() const {
    const Step& step = *step_;
    if (step.kind > StepKind::wait) return reject("unknown kind {}", static_cast<int>(step.kind));
    if (step.reserved != 0) return reject("reserved field is {}, not 0", step.reserved);
    if (step.channel >= schedule_.channels) {
      return reject("channel {} of {}", step.channel, schedule_.channels);
    }
    if (has_peer(step.kind)) {
      if (step.peer >= count_) return reject("peer {} of {} ranks", step.peer, count_);
      if (step.peer == schedule_.rank) return reject("its peer is itself");
    } else if (step.peer != kNone || step.channel != 0) {
      return reject("names a peer or a channel, but talks to no one");
    }
    if ((step.kind == StepKind::wait) != (step.value > 0)) {
      return reject("value {}: a wait needs 1 or more, others 0", step.value);
    }
    if (moves_data(step.kind) != (step.chunk_count > 0)) {
      return reject("moves {} chunks", step.chunk_count);
    }
    if (!moves_data(step.kind) && (step.target != kNone || step.source_count != 0)) {
      return reject("moves nothing, but has operands");
    }
    if (step.finish && step.kind != StepKind::reduce) return reject("only a reduce can finish");
    if (step.kind == StepKind::reduce && !reduces(schedule_.shape.collective)) {
      return reject("{} combines nothing", name(schedule_.shape.collective));
    }
    return {};
  }

  Status check_predecessors() const {
    const std::size_t end = std::size_t{step_->first_predecessor} + step_->predecessor_count;
    if (step_->predecessor_count != 0 && end > schedule_.predecessors.size()) {
      return reject("predecessors beyond the end of their table");
    }
    for (const StepId before : schedule_.predecessors_of(*step_)) {
      if (before >= id_) return reject("comes after step {}, which is not before it", before);
    }
    return {};
  }

  // Checks each operand by itself, and then that all operands hold the same blocks.
  Status check_operands() {
    const Step& step = *step_;
    const bool exactly_one =
        step.kind == StepKind::send || step.kind == StepKind::copy || step.kind == StepKind::put;
    const bool any = step.kind == StepKind::reduce && step.source_count > 0;
    const bool none = step.kind == StepKind::recv && step.source_count == 0;
    if (!(none || any || (exactly_one && step.source_count == 1))) {
      return reject("has {} sources", step.source_count);
    }
    if (step.source_count != 0 &&
        std::size_t{step.first_source} + step.source_count > schedule_.operands.size()) {
      return reject("sources beyond the end of their table");
    }
    if (has_target(step.kind) != (step.target < schedule_.operands.size()) ||
        (!has_target(step.kind) && step.target != kNone)) {
      return reject("target {} of {} operands", step.target, schedule_.operands.size());
    }
    const Operand* target = step.target == kNone ? nullptr : &schedule_.operands[step.target];
    if (target != nullptr) XYLEM_TRY(check_target(*target));
    for (const Operand& source : schedule_.sources(step)) XYLEM_TRY(check_source(source));
    const Operand& model = target != nullptr ? *target : schedule_.sources(step)[0];
    XYLEM_TRY(check_distinct(model));
    for (const Operand& source : schedule_.sources(step)) XYLEM_TRY(check_same(model, source));
    return {};
  }

  Status check_target(const Operand& target) const {
    XYLEM_TRY(check_bounds(target));
    if (target.buffer == Buffer::input) return reject("writes the input");
    const std::uint32_t where = step_->kind == StepKind::put ? step_->peer : schedule_.rank;
    if (target.rank != where)
      return reject("its target lies at rank {}, not {}", target.rank, where);
    return {};
  }

  Status check_source(const Operand& source) const {
    XYLEM_TRY(check_bounds(source));
    const bool mapped = step_->kind == StepKind::copy || step_->kind == StepKind::reduce;
    if (source.rank != schedule_.rank && !mapped) {
      return reject("its source lies at rank {}; only copy and reduce read others' memory",
                    source.rank);
    }
    if (source.rank != schedule_.rank && source.buffer == Buffer::scratch &&
        ranks_[source.rank].scratch.empty()) {
      return reject("rank {} has no scratch", source.rank);
    }
    return {};
  }

  Status check_bounds(const Operand& operand) const {
    if (operand.buffer > Buffer::scratch) return reject("unknown buffer");
    if (operand.rank >= count_) return reject("operand of rank {} of {}", operand.rank, count_);
    if (operand.rank >= ranks_.size()) {
      return reject("operand of rank {}: plans over others' memory are not proven by symmetry",
                    operand.rank);
    }
    const std::uint32_t chunks = chunk_count(ranks_[operand.rank], operand.rank, operand.buffer);
    if (operand.chunk >= chunks || step_->chunk_count > chunks - operand.chunk) {
      return reject("{}[{}] and the {} chunks from there: rank {} has {}", name(operand.buffer),
                    operand.chunk, step_->chunk_count, operand.rank, chunks);
    }
    return {};
  }

  std::uint32_t block(Operand operand, std::uint32_t index) const {
    operand.chunk += index;
    return block_of(ranks_[operand.rank], operand);
  }

  Status check_distinct(const Operand& model) {
    if (step_->chunk_count == 1) return {};
    seen_.clear();
    for (std::uint32_t i = 0; i < step_->chunk_count; ++i) seen_.push_back(block(model, i));
    std::ranges::sort(seen_);
    const auto twice = std::ranges::adjacent_find(seen_);
    if (twice != seen_.end()) return reject("moves block {} twice", *twice);
    return {};
  }

  Status check_same(const Operand& model, const Operand& source) const {
    for (std::uint32_t i = 0; i < step_->chunk_count; ++i) {
      const std::uint32_t expected = block(model, i);
      const std::uint32_t found = block(source, i);
      if (expected != found) {
        return reject("{}[{}] holds block {}, where block {} is meant", name(source.buffer),
                      source.chunk + i, found, expected);
      }
    }
    return {};
  }

  std::span<const Schedule> ranks_;
  const Schedule& schedule_;
  std::uint32_t count_;  // The number of all ranks.
  StepId id_ = 0;
  const Step* step_ = nullptr;
  std::vector<std::uint32_t> seen_;
};

Status check_shape(const Schedule& lead, std::size_t count) {
  const auto wrong = [](std::string rule) {
    return failure(Code::bad_schedule, fmt::format("form: {}", rule));
  };
  const Shape& shape = lead.shape;
  if (static_cast<std::size_t>(shape.collective) >= kCollectiveCount)
    return wrong("unknown collective");
  if (shape.ranks != count) {
    return wrong(fmt::format("{} schedules, but they are for {} ranks", count, shape.ranks));
  }
  if (shape.root >= shape.ranks || (shape.root != 0 && !has_root(shape.collective))) {
    return wrong(
        fmt::format("root {} of {} ranks in {}", shape.root, shape.ranks, name(shape.collective)));
  }
  if (shape.per_host == 0 || shape.ranks % shape.per_host != 0) {
    return wrong(fmt::format("{} ranks per host, which do not divide {} ranks", shape.per_host,
                             shape.ranks));
  }
  std::uint64_t on_hosts = 0;
  for (const std::uint32_t size : shape.host_sizes) on_hosts += size;
  if (!shape.host_sizes.empty() &&
      (on_hosts != shape.ranks ||
       std::ranges::find(shape.host_sizes, 0U) != shape.host_sizes.end())) {
    return wrong(
        fmt::format("hosts of {} ranks: none is empty, and together they have all {} ranks",
                    fmt::join(shape.host_sizes, ", "), shape.ranks));
  }
  if (lead.channels == 0 || lead.channels > kMaxChannels) {
    return wrong(fmt::format("{} channels: 1 to {} are possible", lead.channels, kMaxChannels));
  }
  switch (shape.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::broadcast:
      if (lead.blocks >= 1 && lead.blocks <= kMaxParts) return {};
      return wrong(fmt::format("{} blocks: 1 to {} are possible", lead.blocks, kMaxParts));
    default: break;
  }
  const std::uint32_t expected = shape.collective == Collective::barrier ? 0
                                 : shape.collective == Collective::all_to_all
                                     ? shape.ranks * shape.ranks
                                     : shape.ranks;
  if (lead.blocks != expected) {
    return wrong(
        fmt::format("{} blocks: {} has {} of them", lead.blocks, name(shape.collective), expected));
  }
  return {};
}

}  // namespace

Status check_form(std::span<const Schedule> ranks, const Symmetry* symmetry) {
  const std::size_t count = symmetry == nullptr ? ranks.size() : symmetry->ranks();
  if (count == 0 || count > kMaxRanks) {
    return failure(Code::bad_schedule,
                   fmt::format("form: {} schedules: 1 to {} are possible", count, kMaxRanks));
  }
  XYLEM_TRY(check_shape(ranks[0], count));
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
    XYLEM_TRY(FormChecker(ranks, rank).check());
  }
  return {};
}

}  // namespace xylem::collectives::verifier
