// SPDX-License-Identifier: Apache-2.0
//
// Time of a call. Long messages are many equal slices, and time is linear in their number once the
// pipeline is full; so two shorter runs tell the time of a long one, and the cost of estimating
// does not grow with the message.
#include "xylem/collectives/estimate.h"

#include "simulation.h"

#include <algorithm>
#include <limits>

namespace xylem::collectives {
namespace {

// Slices of the largest step of a run: few enough that the slices of all steps stay within a
// budget, but enough that the shorter run, with half of them, is a filled pipeline, too. Schedules
// of very many steps get two, a ring of 1024 ranks say.
constexpr std::uint64_t kMostSlices = 16;
constexpr std::uint64_t kFewestSlices = 4;
constexpr std::uint64_t kSliceBudget = 100000;
constexpr std::uint64_t kVeryManySteps = 1000000;

std::uint64_t slices_of_run(std::uint64_t steps) {
  if (steps > kVeryManySteps) return 2;
  return std::clamp(kSliceBudget / std::max<std::uint64_t>(steps, 1), kFewestSlices, kMostSlices);
}

std::uint64_t largest_step_bytes(std::span<const Schedule> ranks, const Counts& counts) {
  std::uint64_t largest = 0;
  for (const Schedule& schedule : ranks) {
    const Layout layout(schedule, counts);
    for (const Step& step : schedule.steps) {
      if (step.chunk_count == 0) continue;
      const bool from_source = step.kind == StepKind::send || step.kind == StepKind::put;
      const Operand& operand = schedule.operands[from_source ? step.first_source : step.target];
      largest =
          std::max(largest, layout.extent(operand.buffer, operand.chunk, step.chunk_count).bytes);
    }
  }
  return largest;
}

// A call in proportion to another one, and the memory of its uneven counts.
struct Scaled {
  Scaled(const Counts& whole, double factor) : counts(whole) {
    const auto scale = [&](std::uint64_t count) {
      return static_cast<std::uint64_t>(static_cast<double>(count) * factor);
    };
    for (const std::uint64_t count : whole.input_counts) input.push_back(scale(count));
    for (const std::uint64_t count : whole.output_counts) output.push_back(scale(count));
    counts.count = scale(whole.count);
    counts.input_counts = input;
    counts.output_counts = output;
  }
  Scaled(const Scaled&) = delete;
  Scaled& operator=(const Scaled&) = delete;

  std::vector<std::uint64_t> input, output;
  Counts counts;
};

}  // namespace

double estimate_us(std::span<const Schedule> ranks, const Counts& counts, const CostModel& model) {
  const auto world = verifier::join(ranks);
  if (!world) return std::numeric_limits<double>::infinity();
  const Dependencies dependencies(*world);
  const auto run = [&](const Counts& some) {
    return Simulation(*world, dependencies, model, some).run();
  };
  const std::uint64_t longest = slices_of_run(world->owner.size()) * model.slice_bytes;
  const std::uint64_t largest = largest_step_bytes(ranks, counts);
  if (largest <= longest) return run(counts);
  const double factor = static_cast<double>(longest) / static_cast<double>(largest);
  const double full = run(Scaled(counts, factor).counts);
  const double half = run(Scaled(counts, factor / 2).counts);
  return full + (full - half) * (1 - factor) / (factor / 2);
}

}  // namespace xylem::collectives
