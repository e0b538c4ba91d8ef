// SPDX-License-Identifier: Apache-2.0
//
// Turns a machine and a call into the chosen schedule, proves it and prints it.
#include "plan/plan.h"

#include "bench/geometry.h"
#include "exit_code.h"
#include "plan/job.h"
#include "plan/picture.h"
#include "plan/proof.h"
#include "plan/text.h"
#include "xylem/base/clock.h"
#include "xylem/collectives/choose.h"
#include "xylem/collectives/text.h"
#include "xylem/collectives/verify.h"

#include <fmt/format.h>

#include <sys/resource.h>

#include <algorithm>
#include <array>

namespace xylem::tools {
namespace {

using collectives::Choice;
using collectives::Schedule;
using collectives::Shape;

/// Prints the predicted time of a call on GPU memory as Xylem carries it out today. Today, Xylem
/// sends GPU memory to other hosts through pinned memory, chooses the algorithm by the rates of the
/// CPU, and uses the slice size of host memory.
void print_today(PlannedJob job, PlanOptions options, const Shape& shape, std::uint64_t bytes) {
  options.device = PlanOptions::Device::host;
  options.is_staged = false;
  auto by_cpu = memory_of(options, job.cluster.hosts, job.ranks_of_host);
  options.device = PlanOptions::Device::cuda;
  options.is_staged = true;
  auto staged = memory_of(options, job.cluster.hosts, job.ranks_of_host);
  if (!by_cpu || !staged) return;
  use_memory(job, *std::move(by_cpu));
  auto choice = collectives::Chooser(job.model).choose(shape, bytes, options.algorithm);
  if (!choice) return;
  use_memory(job, *std::move(staged));
  choice = collectives::Chooser(job.model).choose(shape, bytes, choice->planner->name);
  if (!choice) return;
  fmt::print("  {:<24} {}, {} predicted: chosen by the CPU's rates, in slices of {}{}\n", "today",
             choice->planner->name, time_text(choice->predicted_us),
             format_bytes(Bytes{job.model.slice_bytes}),
             job.cluster.hosts.size() > 1 ? ", through pinned memory between hosts" : "");
}

void print_choice(const Choice& choice) {
  fmt::print("  {:<24} {}, {} predicted\n", "chosen", choice.planner->name,
             time_text(choice.predicted_us));
  fmt::print("  {:<24} {}\n", "because", choice.reason);
  if (choice.runner_up == nullptr) return;
  fmt::print("  {:<24} {}, {} predicted\n", "next", choice.runner_up->name,
             time_text(choice.runner_up_us));
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Proves the plan of all ranks if possible, and prints the result; false if the plan is wrong.
bool print_proof(const Choice& choice) {
  const auto start = Clock::now();
  const Proof proof = prove(choice);
  std::string verdict = fmt::format("{}; {}", proof.how, time_text(seconds_since(start) * 1e6));
  if (proof.how.empty()) {
    verdict =
        fmt::format("no: the schedules of all ranks are too many to hold at once, and {}",
                    choice.planner->symmetry == nullptr ? "no symmetry of this algorithm is known"
                                                        : "too many to make one by one in seconds");
  } else if (!proof.outcome) {
    verdict = fmt::format("WRONG: {}", proof.outcome.message());
  }
  fmt::print("  {:<24} {}\n", "verified", verdict);
  return proof.outcome.is_ok();
}

/// Prints the time that a rank takes to make its own plan, and the resources that this command has
/// used.
void print_effort(const Choice& choice, std::uint32_t rank) {
  constexpr std::size_t kRuns = 11;
  std::array<double, kRuns> times;
  for (double& time : times) {
    const auto start = Clock::now();
    (void)choice.schedule(rank);
    time = seconds_since(start);
  }
  std::ranges::sort(times);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print("  {:<24} planning rank {}'s schedule takes {} (median of {}); peak memory {}\n",
             "effort", rank, time_text(times[kRuns / 2] * 1e6), kRuns,
             format_bytes(Bytes{static_cast<std::uint64_t>(usage.ru_maxrss) * 1024}));
}

}  // namespace

int plan(const PlanOptions& options) {
  const auto job = job_of(options);
  if (!job) return refuse("plan", job.status());
  const std::uint32_t ranks = job->ranks();
  for (const auto& [flag, rank] :
       {std::pair("--root", options.root), std::pair("--rank", options.rank)}) {
    if (rank < ranks) continue;
    return refuse("plan", failure(Code::invalid_argument,
                                  fmt::format("{} {}: ranks are 0 to {}", flag, rank, ranks - 1)));
  }
  if (options.format == PlanOptions::Format::svg && ranks > kMostDrawnRanks) {
    return refuse(
        "plan", failure(Code::invalid_argument,
                        fmt::format("--format svg: {} ranks are too many to draw; at most {} are, "
                                    "so plan for fewer (--ranks, --hosts)",
                                    ranks, kMostDrawnRanks)));
  }
  const Shape shape{options.collective, ranks, has_root(options.collective) ? options.root : 0};
  const Geometry sizes = geometry({operation_of(options.collective), options.bytes, kPlannedElement,
                                   options.rank, ranks, options.root});
  collectives::Chooser chooser(job->model);
  const std::uint64_t bytes = std::uint64_t{sizes.count} * kPlannedElement;
  const auto choice = chooser.choose(shape, bytes, options.algorithm);
  if (!choice) return refuse("plan", choice.status());
  const std::string size =
      sizes.size.value == 0 ? "" : fmt::format(" of {}", format_bytes(sizes.size));
  const std::string call = fmt::format("{}{}, {} on {}", name(options.collective), size,
                                       counted(ranks, "rank"), counted(job->hosts(), "host"));
  if (options.format == PlanOptions::Format::schedules) {
    // Without the copies through scratch that stage() adds: a job that reads the schedules adds
    // them itself if its memory requires them.
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      fmt::print("{}{}", rank == 0 ? "" : "\n", collectives::print(choice->plan(rank)));
    }
    return kExitRight;
  }
  if (options.format == PlanOptions::Format::svg) {
    const std::string title = fmt::format("{}: {}, {} predicted", call, choice->planner->name,
                                          time_text(choice->predicted_us));
    fmt::print("{}", draw_plan(*job, *choice, bytes, title));
    return kExitRight;
  }
  const Schedule shown = choice->schedule(options.rank);
  fmt::print("{}\n", call);
  print_job(*job);
  print_choice(*choice);
  if (job->memory.is_on_gpus) print_today(*job, options, shape, bytes);
  const bool is_right = print_proof(*choice);
  print_effort(*choice, options.rank);
  fmt::print("  {:<24} {}\n", fmt::format("rank {}", options.rank), place_of(*job, options.rank));
  if (!options.no_steps) fmt::print("\n{}", collectives::print(shown));
  return is_right ? kExitRight : kExitWrongResult;
}

}  // namespace xylem::tools
