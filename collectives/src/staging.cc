// SPDX-License-Identifier: Apache-2.0
#include "xylem/collectives/staging.h"

#include "xylem/base/check.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

namespace xylem::collectives {
namespace {

/// Builds the staged schedule, one step of the original after the other.
class Stager {
 public:
  Stager(const Schedule& original, const Staging& staging)
      : original_(original),
        staging_(staging),
        first_staged_input_(static_cast<std::uint32_t>(original.scratch.size())) {
    staged_.algorithm = original.algorithm;
    staged_.shape = original.shape;
    staged_.rank = original.rank;
    staged_.blocks = original.blocks;
    staged_.channels = original.channels;
    staged_.scratch = original.scratch;
    if (staging.input) add_room_for_input();
    if (staging.separates_scratch) note_computed_scratch();
  }

  Schedule run() && {
    if (staging_.input && is_overwritten()) copy_whole_input();
    for (const Step& step : original_.steps) {
      if (staging_.input) copy_input_before(step);
      last_of_.push_back(add(step));
    }
    return std::move(staged_);
  }

 private:
  using StepIds = std::vector<StepId>;

  void note_computed_scratch() {
    is_computed_.assign(original_.scratch.size(), false);
    for (const Step& step : original_.steps) {
      if (step.target == kNone || step.kind == StepKind::recv) continue;
      const Operand& target = original_.operands[step.target];
      for (std::uint32_t i = 0; target.buffer == Buffer::scratch && i < step.chunk_count; ++i) {
        is_computed_[target.chunk + i] = true;
      }
    }
  }

  /// True if the step is a receive that must not write its message directly to its target.
  bool is_received_elsewhere(const Step& step, const Operand& target) const {
    if (step.kind != StepKind::recv) return false;
    if (target.buffer != Buffer::scratch) return is_in(staging_.receives, step.peer);
    if (!staging_.separates_scratch) return false;
    const auto first = is_computed_.begin() + target.chunk;
    return std::find(first, first + step.chunk_count, true) != first + step.chunk_count;
  }

  /// Adds one scratch chunk for each chunk of the input, in the same order. So operands of several
  /// chunks stay contiguous.
  void add_room_for_input() {
    const std::uint32_t chunks = chunk_count(original_, original_.rank, Buffer::input);
    input_copies_.assign(chunks, kNone);
    for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
      staged_.scratch.push_back(block_of(original_, {original_.rank, chunk, Buffer::input}));
    }
  }

  /// Adds copies of the input chunks that the step reads and for which no copy has been added yet.
  void copy_input_before(const Step& step) {
    for (const Operand& source : original_.sources(step)) {
      if (source.buffer != Buffer::input) continue;
      for (std::uint32_t chunk = source.chunk; chunk < source.chunk + step.chunk_count; ++chunk) {
        if (input_copies_[chunk] == kNone) input_copies_[chunk] = copy_input(chunk, 1);
      }
    }
  }

  /// Copies the whole input by one step, so that later steps can wait for the whole copy before
  /// they overwrite the input. Since the step copies all chunks at once, its scratch is not a ring
  /// buffer, which could not hold the whole copy.
  void copy_whole_input() {
    if (input_copies_.empty()) return;
    const StepId copy = copy_input(0, static_cast<std::uint32_t>(input_copies_.size()));
    std::ranges::fill(input_copies_, copy);
  }

  StepId copy_input(std::uint32_t first, std::uint32_t count) {
    const Operand target{original_.rank, first_staged_input_ + first, Buffer::scratch};
    return add_copy(target, {original_.rank, first, Buffer::input}, count, {});
  }

  /// True if, in an in-place call, steps may overwrite input that other steps have not read yet.
  /// Only plans of all_to_all have such steps.
  bool is_overwritten() const { return original_.shape.collective == Collective::all_to_all; }

  /// Adds the steps that replace a step of the original. Returns the last of them.
  StepId add(const Step& step) {
    StepIds before = predecessors_of(step);
    std::vector<Operand> sources;
    for (const Operand& source : original_.sources(step)) {
      sources.push_back(staged_input(source, step, before));
    }
    const bool writes_output =
        step.target != kNone && original_.operands[step.target].buffer == Buffer::output;
    if (staging_.input && is_overwritten() && writes_output) before.push_back(input_copies_[0]);
    if (step.kind == StepKind::send && is_in(staging_.sends, step.peer) &&
        sources[0].buffer != Buffer::scratch) {
      const Operand room = add_scratch(sources[0], step.chunk_count);
      before = {add_copy(room, sources[0], step.chunk_count, before)};
      sources[0] = room;
    }
    if (step.target == kNone) return append(step, sources, nullptr, before);
    const Operand target = original_.operands[step.target];
    XYLEM_CHECK(target.rank == original_.rank, target.rank);
    if (is_received_elsewhere(step, target)) {
      const Operand room = add_scratch(target, step.chunk_count);
      const StepId received = append(step, sources, &room, before);
      return add_copy(target, room, step.chunk_count, {received});
    }
    return append(step, sources, &target, before);
  }

  static bool is_in(const std::vector<bool>& ranks, std::uint32_t rank) {
    return rank < ranks.size() && ranks[rank];
  }

  /// The operand that the staged step reads in place of `operand`. If the input is staged, this is
  /// the copy of the input in scratch, and the steps that make the copy are appended to `before`.
  Operand staged_input(Operand operand, const Step& step, StepIds& before) const {
    XYLEM_CHECK(operand.rank == original_.rank, operand.rank);
    if (!staging_.input || operand.buffer != Buffer::input) return operand;
    for (std::uint32_t i = 0; i < step.chunk_count; ++i) {
      before.push_back(input_copies_[operand.chunk + i]);
    }
    return {operand.rank, first_staged_input_ + operand.chunk, Buffer::scratch};
  }

  StepIds predecessors_of(const Step& step) const {
    StepIds before;
    for (const StepId id : original_.predecessors_of(step)) before.push_back(last_of_[id]);
    return before;
  }

  /// Adds scratch for the blocks of the `count` chunks of `like`.
  Operand add_scratch(Operand like, std::uint32_t count) {
    const auto first = static_cast<std::uint32_t>(staged_.scratch.size());
    for (std::uint32_t i = 0; i < count; ++i, ++like.chunk) {
      staged_.scratch.push_back(block_of(staged_, like));
    }
    return {original_.rank, first, Buffer::scratch};
  }

  StepId add_copy(Operand target, Operand source, std::uint32_t count, const StepIds& before) {
    Step copy;
    copy.kind = StepKind::copy;
    copy.chunk_count = count;
    return append(copy, {&source, 1}, &target, before);
  }

  /// Appends a step like `model`, with these operands and predecessors.
  StepId append(const Step& model,
                std::span<const Operand> sources,
                const Operand* target,
                StepIds before) {
    Step& step = staged_.steps.emplace_back(model);
    step.target = step.first_source = kNone;
    if (target != nullptr) {
      step.target = static_cast<std::uint32_t>(staged_.operands.size());
      staged_.operands.push_back(*target);
    }
    if (!sources.empty()) step.first_source = static_cast<std::uint32_t>(staged_.operands.size());
    step.source_count = static_cast<std::uint16_t>(sources.size());
    staged_.operands.insert(staged_.operands.end(), sources.begin(), sources.end());
    std::ranges::sort(before);
    const auto repeated = std::ranges::unique(before);
    before.erase(repeated.begin(), repeated.end());
    step.first_predecessor = static_cast<std::uint32_t>(staged_.predecessors.size());
    step.predecessor_count = static_cast<std::uint16_t>(before.size());
    staged_.predecessors.insert(staged_.predecessors.end(), before.begin(), before.end());
    return static_cast<StepId>(staged_.steps.size() - 1);
  }

  const Schedule& original_;
  const Staging& staging_;
  const std::uint32_t first_staged_input_;
  Schedule staged_;
  StepIds last_of_;  ///< For each step of the original, the last of the steps that replace it.
  /// For each input chunk, the step that copies it, or kNone if that step has not been added yet.
  StepIds input_copies_;
  /// The scratch chunks of the original that are targets of copies or reductions. Empty without
  /// Staging::separates_scratch.
  std::vector<bool> is_computed_;
};

}  // namespace

Staging staged_messages(std::uint32_t ranks) {
  const std::vector<bool> all(ranks, true);
  return {.sends = all, .receives = all};
}

Schedule stage(const Schedule& schedule, const Staging& staging) {
  return Stager(schedule, staging).run();
}

}  // namespace xylem::collectives
