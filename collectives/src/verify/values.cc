// SPDX-License-Identifier: Apache-2.0
//
// Checks claim 3 of verify.h, and the part of claim 2 that concerns values.
#include "verify/values.h"

#include "step_text.h"
#include "xylem/base/hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace xylem::collectives::verifier {

Expressions::Expressions(Symmetry group)
    : group_(std::move(group)), words_((group_.ranks() + 63) / 64) {
  add(false, 0);
  for (std::uint32_t rank = 0; rank < group_.representatives(); ++rank) {
    set_of(add(false, 1))[rank / 64] |= Word{1} << (rank % 64);
  }
}

std::uint32_t Expressions::add(bool finished, std::uint32_t count) {
  counts_.push_back(count);
  finished_.push_back(finished);
  sets_.resize(sets_.size() + words_, 0);
  return static_cast<std::uint32_t>(counts_.size() - 1);
}

std::size_t Expressions::Hash::operator()(const Key& key) const noexcept {
  std::uint64_t hash = key.finish ? 1 : 0;
  for (const Value source : key.sources) {
    hash = combine(combine(hash, source.expression), source.shift);
  }
  return hash;
}

Value Expressions::input_of(std::uint32_t rank) const {
  return {1 + group_.representative(rank), group_.shift(rank)};
}

Value Expressions::moved(Value value, std::uint32_t shift) const {
  return {value.expression, group_.image(value.shift, shift)};
}

std::optional<Value> Expressions::reduce(std::span<const Value> sources, bool finish) {
  if (sources.size() == 1 && !finish) return sources[0];
  const std::uint32_t shift = sources[0].shift;
  const std::uint32_t back = group_.inverse(shift);
  key_.sources.clear();
  key_.finish = finish;
  for (const Value source : sources) key_.sources.push_back(moved(source, back));
  if (const auto at = known_.find(key_); at != known_.end()) return Value{at->second, shift};
  std::uint32_t count = 0;
  for (const Value source : sources) count += contributors(source);
  const std::uint32_t expression = add(finish, count);
  std::ranges::copy(set_of(key_.sources[0].expression), set_of(expression).begin());
  for (const Value source : std::span(key_.sources).subspan(1)) {
    if (add_contributors(expression, source)) continue;
    common_ = group_.image(common_, shift);
    return std::nullopt;
  }
  known_.emplace(key_, expression);
  return Value{expression, shift};
}

// Adds the contributors of `source` to those of `expression`. If one of them is present already,
// stores this rank in common_ and returns false.
bool Expressions::add_contributors(std::uint32_t expression, Value source) {
  const auto from = set_of(source.expression);
  const auto to = set_of(expression);
  for (std::size_t i = 0; i < words_; ++i) {
    for (Word rest = from[i]; rest != 0; rest &= rest - 1) {
      const auto rank =
          static_cast<std::uint32_t>(i * 64) + static_cast<std::uint32_t>(std::countr_zero(rest));
      const std::uint32_t image = group_.image(rank, source.shift);
      const Word bit = Word{1} << (image % 64);
      if ((to[image / 64] & bit) != 0) {
        common_ = image;
        return false;
      }
      to[image / 64] |= bit;
    }
  }
  return true;
}

namespace {

// Even if the plan has no symmetry, expressions that differ only by a rotation of the ranks are
// stored once, to save memory.
Symmetry group_of(const World& world) {
  if (world.symmetry != nullptr) return *world.symmetry;
  const auto ranks = static_cast<std::uint32_t>(world.ranks.size());
  return Symmetry(std::vector{Symmetry::Digit{.radix = ranks}});
}

}  // namespace

Execution::Execution(const World& world, const Locations& locations)
    : world_(world), locations_(&locations), expressions_(group_of(world)) {
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

// A message from an image of a representative contains what the representative sends, with all
// ranks renamed.
Value Execution::received(Global id, std::uint32_t index) const {
  const Step& step = world_.step(id);
  const Global send = world_.partner[id];
  const std::uint32_t shift = world_.shift_of(step.peer);
  if (shift == 0) return seen_[first_seen_[send] + index];
  if (step.chunk_count > 1) {
    Operand target = world_.schedule(id).operands[step.target];
    target.chunk += index;
    const std::uint32_t block = world_.symmetry->image_of_block(
        world_.shape(), block_of(world_.schedule(id), target), world_.symmetry->inverse(shift));
    const Operand& source = world_.schedule(send).operands[world_.step(send).first_source];
    index = block - block_of(world_.schedule(send), source);
  }
  return expressions_.moved(seen_[first_seen_[send] + index], shift);
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
    if (step.kind == StepKind::recv) value = received(id, i);
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
  const auto sum = expressions_.reduce(sources_, step.finish);
  if (!sum) {
    return reject(
        id, fmt::format("counts the input of rank {} twice", expressions_.common_contributor()));
  }
  result = *sum;
  const bool complete = expressions_.contributors(result) == world_.shape().ranks;
  if (step.finish && !complete) {
    return reject(id, fmt::format("finishes with {} of {} contributions",
                                  expressions_.contributors(result), world_.shape().ranks));
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
      if (all_alike && world_.symmetry != nullptr && rank == 0) XYLEM_TRY(check_alike(chunk));
    }
  }
  return {};
}

// Checks that rank 0 holds, in the image of `chunk`, the value of `chunk` with the ranks renamed.
// By symmetry, each image of rank 0 holds this renamed value in the same chunk, so all ranks hold
// the same values. It is enough to check the elements of the symmetry that increase one digit by
// one.
Status Execution::check_alike(std::uint32_t chunk) const {
  const Symmetry& group = *world_.symmetry;
  for (const Symmetry::Digit& digit : group.digits()) {
    if (digit.radix == 1) continue;
    const std::uint32_t shift = digit.rank_stride;
    const std::uint32_t image = group.image_of_block(world_.shape(), chunk, shift);
    const Value there = expressions_.moved(load({0, chunk, Buffer::output}, 0), shift);
    if (load({0, image, Buffer::output}, 0) == there) continue;
    return failure(Code::bad_schedule,
                   fmt::format("contributions: output[{}] of rank {} is summed in another order "
                               "than at rank 0, so the bits may differ",
                               image, group.image(0, shift)));
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
  std::uint32_t origin = shape.root;  // The origin for broadcast and scatter.
  if (!has_root(shape.collective) || shape.collective == Collective::gather) origin = chunk;
  if (value != expressions_.input_of(origin)) {
    return wrong(fmt::format("ends with another rank's data than rank {}'s", origin));
  }
  return {};
}

}  // namespace xylem::collectives::verifier
