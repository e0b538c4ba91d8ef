// SPDX-License-Identifier: Apache-2.0
//
// Decides whether this process is a rank or starts the ranks.
#include "bench/bench.h"

#include "bench/session.h"
#include "exit_code.h"
#include "run/job.h"
#include "xylem/runtime/info.h"

#include <fmt/format.h>

#include <sched.h>

#include <cstdlib>

namespace xylem::tools {
namespace {

constexpr std::uint32_t kDefaultRanks = 2;
/// How long the other ranks may continue after a rank has died. They detect the death within 2 s,
/// and then print its cause.
constexpr std::chrono::seconds kPatience{10};

int complain(const Status& status) {
  fmt::print(stderr, "xylem bench: {}\n", status.message());
  return exit_code(status.code());
}

/// The number of cores on which this process may run; 0 if the system does not report it.
std::uint32_t usable_cores() noexcept {
  cpu_set_t cores;
  const bool is_known = ::sched_getaffinity(0, sizeof cores, &cores) == 0;
  return is_known ? static_cast<std::uint32_t>(CPU_COUNT(&cores)) : 0;
}

int start_ranks(const BenchOptions& options, const std::vector<std::string>& command) {
  JobOptions job;
  job.speaker = "xylem bench";
  job.command = command;
  job.ranks = options.ranks.value_or(kDefaultRanks);
  const std::uint32_t cores = usable_cores();
  if (job.ranks > cores && cores > 0) {
    fmt::print(stderr,
               "xylem bench: {} core{} for {} ranks, which take turns (-n is the number of ranks; "
               "nccl-tests' -n is --iters)\n",
               cores, cores == 1 ? "" : "s", job.ranks);
  }
  job.first_rank_direct = true;
  job.explained_exits = true;
  job.failure_grace = kPatience;
  const auto outcome = run_job(job);
  if (!outcome) return complain(outcome.status());
  const std::optional<JobOutcome::Failure>& failure = outcome->failure;
  if (outcome->interrupted_by != 0 || !failure) return outcome->exit_status();
  const Ending& ending = failure->ending;
  return ending.signal != 0 ? kExitPeer : ending.exit_status;
}

}  // namespace

int bench(const BenchOptions& options, const std::vector<std::string>& command) {
  // More hardware queues, so that more streams may wait. No other thread runs yet.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);  // NOLINT(concurrency-mt-unsafe)
  const auto launcher = launcher_info();
  if (!launcher) return complain(launcher.status());
  if (launcher->name == "none") return start_ranks(options, command);
  if (options.ranks && *options.ranks != launcher->size) {
    return complain(
        failure(Code::invalid_argument,
                fmt::format("-n {}: {} has started {} ranks; leave -n out under a launcher",
                            *options.ranks, launcher->name, launcher->size)));
  }
  return take_part(options);
}

}  // namespace xylem::tools
