// SPDX-License-Identifier: Apache-2.0
#include "plan/proof.h"

#include "plan/text.h"
#include "xylem/collectives/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace xylem::tools {
namespace {

using collectives::Choice;
using collectives::Schedule;

/// The schedules of all ranks; empty if they are too large for a proof in memory.
std::vector<Schedule> plan_all(const Choice& choice) {
  std::vector<Schedule> ranks;
  std::uint64_t chunks = 0;
  for (std::uint32_t rank = 0; rank < choice.shape.ranks; ++rank) {
    const Schedule& schedule = ranks.emplace_back(choice.schedule(rank));
    chunks += collectives::proof_chunks(schedule);
    if (chunks > collectives::kMostProvenChunks) return {};
  }
  return ranks;
}

Proof prove_all(const Choice& choice, const std::vector<Schedule>& ranks) {
  std::uint64_t steps = 0;
  for (const Schedule& schedule : ranks) steps += schedule.steps.size();
  return {collectives::verify(ranks),
          fmt::format("{}, {}, all at once", counted(choice.shape.ranks, "rank"),
                      counted(steps, "step"))};
}

/// Calls `part` with each number less than `parts`, using all cores.
void run_on_all_cores(std::uint32_t parts, const std::function<void(std::uint32_t)>& part) {
  std::atomic<std::uint32_t> next = 0;
  const auto work = [&] {
    for (std::uint32_t i = next++; i < parts; i = next++) part(i);
  };
  std::vector<std::jthread> helpers(std::max(1U, std::thread::hardware_concurrency()) - 1);
  for (std::jthread& helper : helpers) helper = std::jthread(work);
  work();
}

Proof prove_by_symmetry(const Choice& choice) {
  if (choice.planner->symmetry == nullptr) return {};
  const auto plan = [&](std::uint32_t rank) { return choice.schedule(rank); };
  const std::uint64_t steps = std::uint64_t{plan(0).steps.size()} * choice.shape.ranks;
  if (steps > collectives::kMostStepsBySymmetry) return {};
  const auto symmetry = choice.planner->symmetry(choice.shape);
  const std::uint64_t chunks = collectives::proof_chunks(plan(0)) * symmetry.representatives();
  if (chunks > collectives::kMostProvenChunks) return {};
  return {collectives::verify(symmetry, plan, run_on_all_cores),
          fmt::format("{}, {}; every rank's compared with {}, which is proven",
                      counted(choice.shape.ranks, "rank"), counted(steps, "step"),
                      symmetry.representatives() == 1
                          ? "rank 0's by symmetry"
                          : fmt::format("those of the first {}", symmetry.representatives()))};
}

}  // namespace

Proof prove(const Choice& choice) {
  const std::vector<Schedule> all = plan_all(choice);
  return all.empty() ? prove_by_symmetry(choice) : prove_all(choice, all);
}

}  // namespace xylem::tools
