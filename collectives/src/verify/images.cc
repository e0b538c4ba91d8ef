// SPDX-License-Identifier: Apache-2.0
//
// Checks the symmetry itself. Every rank's schedule is made and compared, step by step, with the
// image of its representative's schedule. A run is the chunks of one operand. The image of a run
// consists of the images of its chunks. The symmetry may permute the blocks within a run. It does
// so in the same way for all operands of a step and at both ends of a message, since every run
// holds its blocks in ascending order.
#include "step_text.h"
#include "verify/world.h"

#include <fmt/format.h>

#include <algorithm>

namespace xylem::collectives::verifier {
namespace {

template <typename... Args>
Status reject(fmt::format_string<Args...> rule, Args&&... args) {
  return failure(Code::bad_schedule, "symmetry: " + fmt::format(rule, std::forward<Args>(args)...));
}

// Checks all operands, even those that no step uses: whether a plan uses other ranks' memory
// decides how its slices wait for each other (see pipeline.h).
bool names_only_own_memory(const Schedule& schedule) {
  return std::ranges::all_of(schedule.operands,
                             [&](const Operand& operand) { return operand.rank == schedule.rank; });
}

// Checks the conditions under which the runs of a representative's schedule have well-defined
// images.
class RepresentativeChecker {
 public:
  explicit RepresentativeChecker(const Schedule& schedule)
      : schedule_(schedule), run_of_(schedule.scratch.size()) {}

  Status check() {
    if (!names_only_own_memory(schedule_)) {
      return reject("rank {} names the memory of another rank", schedule_.rank);
    }
    for (StepId id = 0; id < schedule_.steps.size(); ++id) {
      const Step& step = schedule_.steps[id];
      if (step.target != kNone) XYLEM_TRY(check(id, schedule_.operands[step.target]));
      for (const Operand& source : schedule_.sources(step)) XYLEM_TRY(check(id, source));
    }
    const auto unused = std::ranges::find(run_of_, Run());
    if (unused == run_of_.end()) return {};
    return reject("rank {}: no step names scratch[{}], so nothing tells what holds at its images",
                  schedule_.rank, unused - run_of_.begin());
  }

 private:
  struct Run {
    std::uint32_t first = 0;
    std::uint32_t count = 0;  // 0: no step uses the chunk.
    friend bool operator==(const Run&, const Run&) = default;
  };

  Status check(StepId id, const Operand& operand) {
    const Step& step = schedule_.steps[id];
    const auto wrong = [&](std::string_view rule) {
      return reject("rank {}, step {} ({}): {}", schedule_.rank, id, step_text(schedule_, step),
                    rule);
    };
    Operand at = operand;
    const std::uint32_t first = block_of(schedule_, operand);
    for (std::uint32_t i = 0; i < step.chunk_count; ++i, ++at.chunk) {
      if (block_of(schedule_, at) != first + i) return wrong("names blocks that are not in order");
      if (operand.buffer != Buffer::scratch) continue;
      const Run run{operand.chunk, step.chunk_count};
      Run& known = run_of_[at.chunk];
      if (known.count == 0) known = run;
      if (known != run) return wrong("names a part of a run of scratch that others name whole");
    }
    return {};
  }

  const Schedule& schedule_;
  std::vector<Run> run_of_;  // For each scratch chunk, the run in which steps use it.
};

// Compares the schedules of ranks with those of their representatives. Only one thread may use an
// object.
class ImageChecker {
 public:
  ImageChecker(std::span<const Schedule> representatives, const Symmetry& symmetry)
      : representatives_(representatives),
        symmetry_(symmetry),
        ranks_(symmetry.ranks()),
        blocks_(representatives[0].blocks) {}

  Status check(std::uint32_t rank, const Schedule& schedule) {
    const Schedule& model = representatives_[symmetry_.representative(rank)];
    shift_ = symmetry_.shift(rank);
    symmetry_.rank_images(ranks_, shift_);
    if (has_free_parts(model.shape.collective)) symmetry_.part_images(blocks_, shift_);
    if (schedule.rank != rank || schedule.algorithm != model.algorithm ||
        schedule.shape != model.shape || schedule.blocks != model.blocks ||
        schedule.channels != model.channels || schedule.scratch.size() != model.scratch.size() ||
        schedule.steps.size() != model.steps.size() ||
        schedule.operands.size() != model.operands.size() ||
        schedule.predecessors != model.predecessors || !names_only_own_memory(schedule)) {
      return reject("the schedule of rank {} is not like that of rank {}", rank, model.rank);
    }
    for (StepId id = 0; id < model.steps.size(); ++id) {
      if (is_image(model, schedule, id)) continue;
      return reject("rank {}, step {} ({}): is not the image of rank {}'s ({})", rank, id,
                    name(schedule.steps[id].kind), model.rank, step_text(model, model.steps[id]));
    }
    return {};
  }

 private:
  bool is_image(const Schedule& model, const Schedule& schedule, StepId id) const {
    Step expected = model.steps[id];
    const Step& step = schedule.steps[id];
    if (expected.peer != kNone) expected.peer = ranks_[expected.peer];
    if (step != expected) return false;
    const auto alike = [&](std::uint32_t operand) {
      return is_image(model, model.operands[operand], schedule, schedule.operands[operand],
                      step.chunk_count);
    };
    if (step.target != kNone && !alike(step.target)) return false;
    for (std::uint32_t i = 0; i < step.source_count; ++i) {
      if (!alike(step.first_source + i)) return false;
    }
    return true;
  }

  bool is_image(const Schedule& model,
                const Operand& operand,
                const Schedule& schedule,
                const Operand& found,
                std::uint32_t count) const {
    if (found.buffer != operand.buffer) return false;
    if (operand.buffer != Buffer::scratch) {
      if (found.chunk >= chunk_count(schedule, schedule.rank, found.buffer)) return false;
    } else if (found.chunk != operand.chunk) {
      return false;
    }
    // In the representative's schedule the blocks ascend. Their images, sorted, must be the blocks
    // of `found`.
    const std::uint32_t first = block_of(schedule, found);
    const std::uint32_t model_first = block_of(model, operand);
    if (count == 1) return first == image_of(model, model_first);
    std::uint32_t low = kNone, high = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t image = image_of(model, model_first + i);
      low = std::min(low, image);
      high = std::max(high, image);
    }
    if (low != first || high - low + 1 != count) return false;
    if (operand.buffer != Buffer::scratch) return true;
    for (std::uint32_t i = 0; i < count; ++i) {
      if (schedule.scratch[found.chunk + i] != first + i) return false;
    }
    return true;
  }

  std::uint32_t image_of(const Schedule& model, std::uint32_t block) const {
    if (has_free_parts(model.shape.collective)) return blocks_[block];
    if (model.shape.collective != Collective::all_to_all) return ranks_[block];
    return symmetry_.image_of_block(model.shape, block, shift_);
  }

  std::span<const Schedule> representatives_;
  const Symmetry& symmetry_;
  std::vector<std::uint32_t> ranks_;   // The image of each rank.
  std::vector<std::uint32_t> blocks_;  // The image of each block, if blocks are parts.
  std::uint32_t shift_ = 0;
};

}  // namespace

Status check_images(std::span<const Schedule> representatives,
                    const Symmetry& symmetry,
                    const ScheduleMaker& plan,
                    const ParallelFor& run) {
  const Schedule& lead = representatives[0];
  if (has_root(lead.shape.collective) || lead.shape.collective == Collective::barrier) {
    return reject("{} is not proven by symmetry", name(lead.shape.collective));
  }
  if (has_free_parts(lead.shape.collective) && !symmetry.divides(lead.blocks)) {
    return reject("{} blocks do not fall into its cycles", lead.blocks);
  }
  for (const Schedule& schedule : representatives)
    XYLEM_TRY(RepresentativeChecker(schedule).check());
  // The ranks are checked in parts. Each part stops at its first rank whose schedule is not an
  // image. The error names the lowest of these ranks.
  constexpr std::uint32_t kMostParts = 64;
  const std::uint32_t parts = std::min(kMostParts, symmetry.ranks());
  std::vector<Status> outcomes(parts);
  const auto first_of = [&](std::uint32_t part) {
    return static_cast<std::uint32_t>(std::uint64_t{part} * symmetry.ranks() / parts);
  };
  const auto check_part = [&](std::uint32_t part) {
    ImageChecker checker(representatives, symmetry);
    for (std::uint32_t rank = first_of(part); rank < first_of(part + 1); ++rank) {
      outcomes[part] = checker.check(rank, plan(rank));
      if (!outcomes[part]) return;
    }
  };
  if (run) {
    run(parts, check_part);
  } else {
    for (std::uint32_t part = 0; part < parts; ++part) check_part(part);
  }
  for (const Status& outcome : outcomes) XYLEM_TRY(outcome);
  return {};
}

}  // namespace xylem::collectives::verifier
