// SPDX-License-Identifier: Apache-2.0
//
// Turns flags into a job.
#include "run/run.h"

#include "exit_code.h"
#include "run/binding.h"
#include "run/job.h"

#include <fmt/format.h>

namespace xylem::tools {

int run(const RunOptions& options) {
  JobOptions job;
  job.command = options.command;
  job.ranks = options.ranks;
  job.prefix = options.prefix;
  job.timeout = options.timeout;
  if (!options.require.empty()) job.variables.emplace_back("XYLEM_REQUIRE", options.require);
  if (options.bind) {
    auto cpus = bind_ranks(options.ranks);
    if (!cpus) {
      fmt::print(stderr, "{}: {}\n", job.speaker, cpus.status().message());
      return kExitNotRunnable;
    }
    job.cpus = std::move(*cpus);
  }
  const auto outcome = run_job(job);
  if (outcome) return outcome->exit_status();
  fmt::print(stderr, "{}: {}\n", job.speaker, outcome.status().message());
  return outcome.code() == Code::invalid_argument ? kExitNotFound : kExitNotRunnable;
}

}  // namespace xylem::tools
