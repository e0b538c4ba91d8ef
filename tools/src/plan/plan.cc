// SPDX-License-Identifier: Apache-2.0
//
// Turns a machine and a call into the chosen schedule, proves it and prints it.
#include "plan/plan.h"

#include "bench/geometry.h"
#include "exit_code.h"
#include "plan/job.h"
#include "plan/picture.h"
#include "xylem/base/clock.h"
#include "xylem/collectives/choose.h"
#include "xylem/collectives/text.h"
#include "xylem/collectives/verify.h"

#include <fmt/format.h>

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <thread>

namespace xylem::tools {
namespace {

using collectives::Choice;
using collectives::Schedule;
using collectives::Shape;

constexpr std::uint32_t kElementBytes = 4;
/// "1.28 ms", "53 us", "2.4 s".
std::string time_text(double us) {
  if (us < 1e3) return fmt::format("{:.3g} us", us);
  return us < 1e6 ? fmt::format("{:.3g} ms", us / 1e3) : fmt::format("{:.3g} s", us / 1e6);
}

int refuse(const Status& status) {
  fmt::print(stderr, "xylem plan: {}\n", status.message());
  return kExitUsage;
}

Operation operation_of(collectives::Collective collective) {
  // Both enumerations use the same names.
  return *parse_operation(name(collective));
}

std::string_view data_text(const PlannedMemory& memory) {
  if (!memory.is_on_gpus) return "in memory of the hosts";
  return memory.is_staged ? "in memory of GPUs, sent between hosts through pinned memory"
                          : "in memory of GPUs, sent directly over their links";
}

void print_job(const PlannedJob& job) {
  const auto line = [](const char* where, const collectives::LinkCost& cost,
                       const std::string& origin) {
    fmt::print("  {:<24} {:.4g} us + {} ({})\n", where, cost.alpha_us,
               format_bandwidth(GBps{cost.bandwidth_GBps}), origin);
  };
  fmt::print("  {:<24} {}\n", "data", data_text(job.memory));
  line("between ranks of a host", job.model.local, job.memory.local_origin);
  if (job.hosts() > 1) {
    line("between hosts", job.model.remote, job.remote_origin);
    const auto rails = rails_of(job);
    for (std::size_t i = 0; i < rails.size(); ++i) {
      fmt::print("  {:<24} {}\n", fmt::format("rail {}", i), rails[i]);
    }
  }
  for (std::size_t host = 0; host < job.ranks_of_host.size(); ++host) {
    const std::uint32_t cores = job.model.machine_cores[host], ranks = job.ranks_of_host[host];
    if (cores == 0 || cores >= ranks) continue;
    fmt::print("  {:<24} {} cores for {} ranks, which take turns\n",
               fmt::format("on host {}", host), cores, ranks);
    break;  // The other hosts are usually equal.
  }
  const collectives::ComputeCost& compute = job.model.compute;
  fmt::print("  {:<24} reductions {}, copies {} ({})\n", "at a rank",
             format_bandwidth(GBps{compute.reduce_GBps}), format_bandwidth(GBps{compute.copy_GBps}),
             job.memory.compute_origin);
  if (compute.is_device) {
    fmt::print(
        "  {:<24} {:.3g} us of the core to begin a piece, {:.3g} us until it is seen to "
        "begin and end (assumed)\n",
        "", compute.enqueue_us, compute.latency_us);
  }
  fmt::print("  {:<24} {} ({})\n", "slices", format_bytes(Bytes{job.memory.slice_bytes}),
             job.memory.slice_origin);
}

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

std::string counted(std::uint64_t count, std::string_view thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
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

/// The result of a proof.
struct Proof {
  Status outcome;
  std::string how;  ///< "8 ranks, 112 steps, all at once"; empty if there is no proof.
};

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
  return {collectives::verify(symmetry, plan, run_on_all_cores),
          fmt::format("{}, {}; every rank's compared with {}, which is proven",
                      counted(choice.shape.ranks, "rank"), counted(steps, "step"),
                      symmetry.representatives() == 1
                          ? "rank 0's by symmetry"
                          : fmt::format("those of the first {}", symmetry.representatives()))};
}

/// Proves the plan of all ranks if possible, and prints the result; false if the plan is wrong.
bool print_proof(const Choice& choice) {
  const auto start = Clock::now();
  const std::vector<Schedule> all = plan_all(choice);
  const Proof proof = all.empty() ? prove_by_symmetry(choice) : prove_all(choice, all);
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
  if (!job) return refuse(job.status());
  const std::uint32_t ranks = job->ranks();
  for (const auto& [flag, rank] :
       {std::pair("--root", options.root), std::pair("--rank", options.rank)}) {
    if (rank < ranks) continue;
    return refuse(failure(Code::invalid_argument,
                          fmt::format("{} {}: ranks are 0 to {}", flag, rank, ranks - 1)));
  }
  if (options.format == PlanOptions::Format::svg && ranks > kMostDrawnRanks) {
    return refuse(
        failure(Code::invalid_argument,
                fmt::format("--format svg: {} ranks are too many to draw; at most {} are, "
                            "so plan for fewer (--ranks, --hosts)",
                            ranks, kMostDrawnRanks)));
  }
  const Shape shape{options.collective, ranks, has_root(options.collective) ? options.root : 0};
  const Geometry sizes = geometry({operation_of(options.collective), options.bytes, kElementBytes,
                                   options.rank, ranks, options.root});
  collectives::Chooser chooser(job->model);
  const std::uint64_t bytes = std::uint64_t{sizes.count} * kElementBytes;
  const auto choice = chooser.choose(shape, bytes, options.algorithm);
  if (!choice) return refuse(choice.status());
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
