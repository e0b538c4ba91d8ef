// SPDX-License-Identifier: Apache-2.0
//
// Estimates the time of a call. Long messages consist of many equal slices, and the time is linear
// in their number once the pipeline is full. So two simulations of shorter messages determine the
// time of a long message, and the cost of an estimate does not grow with the message.
#include "xylem/collectives/estimate.h"

#include "simulation.h"

#include <algorithm>
#include <limits>

namespace xylem::collectives {
namespace {

// The number of slices of the largest step in one simulated run. It is small enough to keep the
// slices of all steps within a budget, but large enough that the shorter run, with half as many
// slices, still fills the pipeline. Schedules with very many steps, such as a ring of 1024 ranks,
// get two slices.
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
      largest = std::max(largest, step_bytes(schedule, layout, step));
    }
  }
  return largest;
}

std::uint64_t scaled(std::uint64_t count, double factor) {
  return static_cast<std::uint64_t>(static_cast<double>(count) * factor);
}

std::vector<std::uint64_t> scaled(std::span<const std::uint64_t> counts, double factor) {
  std::vector<std::uint64_t> result(counts.begin(), counts.end());
  for (std::uint64_t& count : result) count = scaled(count, factor);
  return result;
}

double estimate(std::span<const Schedule> ranks,
                const Symmetry* symmetry,
                const Counts& counts,
                const CostModel& model) {
  const auto world = verifier::join(ranks, symmetry);
  if (!world) return std::numeric_limits<double>::infinity();
  const Dependencies dependencies(*world);
  // The time of a call with this fraction of the counts.
  const auto run = [&](double fraction) {
    const auto inputs = scaled(counts.input_counts, fraction);
    const auto outputs = scaled(counts.output_counts, fraction);
    const Counts some{scaled(counts.count, fraction), inputs, outputs, counts.element_bytes};
    return Simulation(*world, dependencies, model, some).run();
  };
  const std::uint64_t longest = slices_of_run(world->owner.size()) * model.slice_bytes;
  const std::uint64_t largest = largest_step_bytes(ranks, counts);
  if (largest <= longest) return run(1);
  const double fraction = static_cast<double>(longest) / static_cast<double>(largest);
  const double full = run(fraction);
  const double half = run(fraction / 2);
  return full + (full - half) * (1 - fraction) / (fraction / 2);
}

}  // namespace

double estimate_us(std::span<const Schedule> ranks, const Counts& counts, const CostModel& model) {
  return estimate(ranks, nullptr, counts, model);
}

double estimate_us(std::span<const Schedule> representatives,
                   const Symmetry& symmetry,
                   const Counts& counts,
                   const CostModel& model) {
  return estimate(representatives, &symmetry, counts, model);
}

std::vector<std::vector<StepTime>> predict_steps(std::span<const Schedule> ranks,
                                                 const Counts& counts,
                                                 const CostModel& model) {
  const auto world = verifier::join(ranks);
  if (!world) return {};
  CostModel coarse = model;
  coarse.slice_bytes = std::max(model.slice_bytes, largest_step_bytes(ranks, counts) / kMostSlices);
  const Dependencies dependencies(*world);
  Simulation simulation(*world, dependencies, coarse, counts);
  simulation.run();
  std::vector<std::vector<StepTime>> times;
  times.reserve(ranks.size());
  for (const Schedule& schedule : ranks) {
    auto& of_rank = times.emplace_back();
    of_rank.reserve(schedule.steps.size());
    for (StepId id = 0; id < schedule.steps.size(); ++id) {
      const verifier::Global step = world->first[schedule.rank] + id;
      const bool is_recv = schedule.steps[id].kind == StepKind::recv;
      const verifier::Global task = is_recv ? world->partner[step] : step;
      of_rank.push_back({simulation.began_us(task), simulation.ended_us(task)});
    }
  }
  return times;
}

}  // namespace xylem::collectives
