// SPDX-License-Identifier: Apache-2.0
//
// Runs jobs of mixed_rank. Their programs are drawn from seeds. They mix all kinds of calls, with
// or without a fault at a random moment. For each job that fails, a line with the command that
// repeats the job is printed. A summary follows.
//
//   mixed_programs [--seed N] [--jobs N | --seconds N] [--programs N] [--calls N] [--ranks N]
//                  [--transport shm|tcp|ucx-tcp] [--fault
//                  none|kill|stop|pause|leave|abort|mismatch|cut|any] [--device none|cuda]
//
// The seed of a job is the seed of its first program. Each further program has the next seed. The
// seeds of consecutive jobs differ by --programs, so --seed can continue a long run at any job.
// Without --ranks, a job has 1 to 8 ranks.
#include "mixed/program.h"
#include "support/subprocess.h"
#include "xylem/base/clock.h"

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace xylem::test::mixed {
namespace {

using std::chrono::seconds;

struct Plan {
  std::uint64_t seed = 1, jobs = 10;
  std::optional<seconds> time;
  std::uint32_t programs = 10, calls = 200, ranks = 0;
  std::string transport = "shm", fault = "none", device = "none";
};

constexpr const char* kFaults[] = {"kill", "stop", "pause", "leave", "abort", "mismatch", "cut"};

struct Job {
  std::uint64_t seed = 0;
  std::uint32_t ranks = 0, programs = 0, victim = 0;
  std::string fault;
};

struct Total {
  std::uint64_t jobs = 0, programs = 0, calls = 0, wrong = 0;
  double worst = 0;
};

Job job_of(const Plan& plan, std::uint64_t seed) {
  Job job;
  job.seed = seed;
  const bool has_fault = plan.fault != "none";
  const auto drawn = static_cast<std::uint32_t>(draw(seed, 50) % 8 + 1);
  job.ranks = plan.ranks != 0 ? plan.ranks : has_fault ? std::max(2U, drawn) : drawn;
  job.victim = static_cast<std::uint32_t>(draw(seed, 51) % job.ranks);
  if (has_fault)
    job.fault = plan.fault == "any" ? kFaults[draw(seed, 52) % (plan.transport == "tcp" ? 7 : 6)]
                                    : plan.fault;
  job.programs = has_fault ? 1 : plan.programs;
  return job;
}

/// The expected exit status of a rank.
int status_of(const Job& job, std::uint32_t rank) {
  return job.fault == "kill" && rank == job.victim ? 128 + SIGKILL : 0;
}

/// Runs a job. Returns what went wrong, or an empty string.
std::string run(const Plan& plan, const Job& job, double& worst) {
  const TemporaryDirectory directory;
  std::vector<std::string> arguments{std::to_string(job.seed), std::to_string(job.programs),
                                     std::to_string(plan.calls), plan.device};
  std::map<std::string, std::string> environment{{"XYLEM_TRANSPORT", plan.transport},
                                                 {"XYLEM_LOG", "off"}};
  // Seed of the random delays of the stand-in's streams.
  environment["FAKE_CUDA_SEED"] = std::to_string(job.seed);
  if (!job.fault.empty()) {
    arguments.insert(arguments.end(), {job.fault, std::to_string(job.victim), directory.path()});
    environment["XYLEM_TIMEOUT"] = job.fault == "stop" ? "1500ms" : "60s";
    // Measurements at the start would connect the ranks, and connections that exist at the start
    // are never cut.
    if (job.fault == "cut") environment["XYLEM_TUNING"] = "off";
  }
  auto ranks = start_ranks(directory, job.ranks, "mixed_rank", arguments, environment);
  if (job.fault == "stop") {
    for (std::uint32_t rank = 0; rank < job.ranks; ++rank) {
      if (rank != job.victim) ranks[rank].wait_for_output("survived", seconds(60));
    }
    ranks[job.victim].signal(SIGCONT);
  }
  std::string wrong;
  for (std::uint32_t rank = 0; rank < job.ranks; ++rank) {
    const Exit exit = ranks[rank].wait(seconds(120));
    if (exit.status != status_of(job, rank)) {
      wrong += "  rank " + std::to_string(rank) + " ended with " + std::to_string(exit.status) +
               ": " + exit.output + "\n";
    }
    if (const auto at = exit.output.find("worst "); at != std::string::npos) {
      worst = std::max(worst, std::strtod(exit.output.c_str() + at + 6, nullptr));
    }
  }
  return wrong;
}

void tell(const Plan& plan, const Job& job, const std::string& wrong) {
  std::printf(
      "WRONG: mixed_programs --seed %llu --jobs 1 --programs %u --calls %u --ranks %u "
      "--transport %s --fault %s --device %s\n%s",
      static_cast<unsigned long long>(job.seed), job.programs, plan.calls, job.ranks,
      plan.transport.c_str(), job.fault.empty() ? "none" : job.fault.c_str(), plan.device.c_str(),
      wrong.c_str());
  std::fflush(stdout);
}

std::optional<Plan> parse(int argc, char** argv) {
  Plan plan;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const char* value = argv[i + 1];
    const auto number = std::strtoull(value, nullptr, 10);
    if (name == "--seed") plan.seed = number;
    else if (name == "--jobs") plan.jobs = number;
    else if (name == "--seconds") plan.time = seconds(number);
    else if (name == "--programs") plan.programs = static_cast<std::uint32_t>(number);
    else if (name == "--calls") plan.calls = static_cast<std::uint32_t>(number);
    else if (name == "--ranks") plan.ranks = static_cast<std::uint32_t>(number);
    else if (name == "--transport") plan.transport = value;
    else if (name == "--fault") plan.fault = value;
    else if (name == "--device") plan.device = value;
    else return std::nullopt;
  }
  return argc % 2 == 1 && plan.calls > 0 ? std::optional(plan) : std::nullopt;
}

int run(int argc, char** argv) {
  const auto plan = parse(argc, argv);
  if (!plan) {
    std::fputs(
        "usage: mixed_programs [--seed N] [--jobs N | --seconds N] [--programs N] "
        "[--calls N] [--ranks N] [--transport NAME] [--fault NAME] [--device NAME]\n",
        stderr);
    return 2;
  }
  Total total;
  const Deadline end = Deadline::after(plan->time.value_or(seconds(0)));
  const auto goes_on = [&] { return plan->time ? !end.passed() : total.jobs < plan->jobs; };
  while (goes_on()) {
    const Job job = job_of(*plan, plan->seed + total.jobs * plan->programs);
    const std::string wrong = run(*plan, job, total.worst);
    ++total.jobs;
    total.programs += job.programs;
    total.calls += std::uint64_t{job.programs} * plan->calls;
    if (wrong.empty()) continue;
    ++total.wrong;
    tell(*plan, job, wrong);
  }
  const std::uint64_t next = plan->seed + total.jobs * plan->programs;
  std::printf(
      "%llu jobs, %llu programs, %llu calls of all ranks, %llu wrong; the longest wait for "
      "an error took %.3f s; next seed %llu\n",
      static_cast<unsigned long long>(total.jobs), static_cast<unsigned long long>(total.programs),
      static_cast<unsigned long long>(total.calls), static_cast<unsigned long long>(total.wrong),
      total.worst, static_cast<unsigned long long>(next));
  return total.wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace xylem::test::mixed

int main(int argc, char** argv) { return xylem::test::mixed::run(argc, argv); }
