// SPDX-License-Identifier: Apache-2.0
//
// Claim 3, and the values' half of claim 2.
#include "verify/values.h"

#include "step_text.h"
#include "xylem/base/hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace xylem::collectives::verifier {

Expressions::Expressions(std::uint32_t ranks) : words_((ranks + 63) / 64), scratch_(words_) {
  add(false, 0);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const Value value = add(false, 1);
    set_of(value)[rank / 64] |= Word{1} << (rank % 64);
  }
}

Value Expressions::add(bool finished, std::uint32_t count) {
  counts_.push_back(count);
  finished_.push_back(finished);
  sets_.resize(sets_.size() + words_, 0);
  return static_cast<Value>(counts_.size() - 1);
}

std::size_t Expressions::Hash::operator()(const Key& key) const noexcept {
  std::uint64_t hash = key.finish ? 1 : 0;
  for (const Value source : key.sources) hash = combine(hash, source);
  return hash;
}

Value Expressions::reduce(std::span<const Value> sources, bool finish) {
  if (sources.size() == 1 && !finish) return sources[0];
  Key key{{sources.begin(), sources.end()}, finish};
  if (const auto at = known_.find(key); at != known_.end()) return at->second;
  std::uint32_t count = 0;
  for (const Value source : sources) count += counts_[source];
  const Value value = add(finish, count);
  for (const Value source : sources) {
    for (std::size_t i = 0; i < words_; ++i) set_of(value)[i] |= set_of(source)[i];
  }
  known_.emplace(std::move(key), value);
  return value;
}

std::uint32_t Expressions::common_contributor(std::span<const Value> values) {
  std::ranges::fill(scratch_, 0);
  for (const Value value : values) {
    for (std::size_t i = 0; i < words_; ++i) {
      const Word both = scratch_[i] & set_of(value)[i];
      if (both != 0)
        return static_cast<std::uint32_t>(i * 64) +
               static_cast<std::uint32_t>(std::countr_zero(both));
      scratch_[i] |= set_of(value)[i];
    }
  }
  return kNone;
}

Execution::Execution(const World& world, const Locations& locations)
    : world_(world),
      locations_(&locations),
      expressions_(static_cast<std::uint32_t>(world.ranks.size())) {
  first_seen_.reserve(world.owner.size() + 1);
  first_seen_.push_back(0);
  for (Global id = 0; id < world.owner.size(); ++id) {
    first_seen_.push_back(first_seen_.back() + world.step(id).chunk_count);
  }
  seen_.assign(first_seen_.back(), kUnwritten);
}

void Execution::fill_inputs() {
  memory_.assign(locations_->count(), kUnwritten);
  for (std::uint32_t rank = 0; rank < world_.ranks.size(); ++rank) {
    const std::uint32_t chunks = chunk_count(world_.ranks[rank], rank, Buffer::input);
    for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
      memory_[locations_->of({rank, 0, Buffer::input}, chunk)] = expressions_.input_of(rank);
    }
  }
}

Status Execution::run(std::span<const Global> order) {
  fill_inputs();
  for (const Global id : order) XYLEM_TRY(execute(id));
  return {};
}

Status Execution::repeat(std::span<const Global> order, const Locations& locations) {
  locations_ = &locations;
  const std::vector<Value> before = seen_;
  fill_inputs();
  for (const Global id : order) {
    const Status outcome = execute(id);
    const auto begin = static_cast<std::ptrdiff_t>(first_seen_[id]);
    const auto end = static_cast<std::ptrdiff_t>(first_seen_[id + 1]);
    if (outcome && std::equal(before.begin() + begin, before.begin() + end, seen_.begin() + begin))
      continue;
    return failure(
        Code::bad_schedule,
        fmt::format("aliasing: in place, {} sees other values than out of place: a chunk of "
                    "the input was overwritten through the output",
                    world_.describe(id)));
  }
  return {};
}

Status Execution::reject(Global id, std::string_view rule) const {
  return failure(Code::bad_schedule,
                 fmt::format("contributions: {} {}", world_.describe(id), rule));
}

Value Execution::load(const Operand& operand, std::uint32_t index) const {
  return memory_[locations_->of(operand, index)];
}

Status Execution::execute(Global id) {
  const Schedule& schedule = world_.schedule(id);
  const Step& step = world_.step(id);
  for (std::uint32_t i = 0; i < step.chunk_count; ++i) {
    Value value = kUnwritten;
    for (const Operand& source : schedule.sources(step)) {
      value = load(source, i);
      if (value != kUnwritten) continue;
      return reject(id, fmt::format("reads {}, which nothing has written",
                                    locations_->describe(locations_->of(source, i))));
    }
    if (step.kind == StepKind::reduce) XYLEM_TRY(reduce(id, i, value));
    if (step.kind == StepKind::recv) value = seen_[first_seen_[world_.partner[id]] + i];
    seen_[first_seen_[id] + i] = value;
    if (step.target != kNone) memory_[locations_->of(schedule.operands[step.target], i)] = value;
  }
  return {};
}

Status Execution::reduce(Global id, std::uint32_t index, Value& result) {
  const Schedule& schedule = world_.schedule(id);
  const Step& step = world_.step(id);
  sources_.clear();
  for (const Operand& source : schedule.sources(step)) sources_.push_back(load(source, index));
  for (const Value source : sources_) {
    if (expressions_.is_finished(source)) return reject(id, "reduces what is already finished");
  }
  const std::uint32_t twice = expressions_.common_contributor(sources_);
  if (twice != kNone) return reject(id, fmt::format("counts the input of rank {} twice", twice));
  result = expressions_.reduce(sources_, step.finish);
  const bool complete = expressions_.contributors(result) == world_.ranks.size();
  if (step.finish && !complete) {
    return reject(id, fmt::format("finishes with {} of {} contributions",
                                  expressions_.contributors(result), world_.ranks.size()));
  }
  if (!step.finish && complete)
    return reject(id, "completes the contributions, but does not finish");
  return {};
}

Status Execution::check_outputs() const {
  const Schedule& lead = world_.ranks[0];
  const bool all_alike = lead.shape.collective == Collective::all_reduce;
  for (std::uint32_t rank = 0; rank < world_.ranks.size(); ++rank) {
    const std::uint32_t chunks = chunk_count(world_.ranks[rank], rank, Buffer::output);
    for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
      const Value first = all_alike ? load({0, chunk, Buffer::output}, 0) : kUnwritten;
      XYLEM_TRY(check_output(rank, chunk, first));
    }
  }
  return {};
}

Status Execution::check_output(std::uint32_t rank,
                               std::uint32_t chunk,
                               Value first_rank_value) const {
  const Shape& shape = world_.ranks[0].shape;
  const Value value = load({rank, chunk, Buffer::output}, 0);
  const auto wrong = [&](std::string_view rule) {
    return failure(Code::bad_schedule,
                   fmt::format("contributions: output[{}] of rank {} {}", chunk, rank, rule));
  };
  if (value == kUnwritten) return wrong("is never written");
  if (reduces(shape.collective)) {
    if (shape.ranks > 1 && !expressions_.is_finished(value)) {
      return wrong(fmt::format("ends with {} of {} contributions", expressions_.contributors(value),
                               shape.ranks));
    }
    if (shape.collective == Collective::all_reduce && value != first_rank_value) {
      return wrong("is summed in another order than at rank 0, so the bits may differ");
    }
    return {};
  }
  std::uint32_t origin = shape.root;  // broadcast, scatter
  if (!has_root(shape.collective) || shape.collective == Collective::gather) origin = chunk;
  if (value != expressions_.input_of(origin)) {
    return wrong(fmt::format("ends with another rank's data than rank {}'s", origin));
  }
  return {};
}

}  // namespace xylem::collectives::verifier
