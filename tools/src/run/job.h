// SPDX-License-Identifier: Apache-2.0
//
// run_job: one program as n ranks on this host, from the first fork until nothing of it is left.
//
//   running ──a rank fails──► failing ──patience over──► ending ──grace over──► killing
//      └──Ctrl-C, time-out, output closed, ranks gone but children left──►┘
//
// In `ending` every process of the job has got SIGTERM, in `killing` SIGKILL. A job is over when no
// process that descends from it is alive, whatever group or session it moved to.
#pragma once

#include "run/process.h"
#include "xylem/base/status.h"
#include "xylem/topology/cpu_set.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace xylem::tools {

struct JobOptions {
  std::string speaker = "xylem run";  ///< Leads the lines that the launcher itself writes.
  std::vector<std::string> command;
  std::uint32_t ranks = 1;
  std::vector<topology::CpuSet> cpus;  ///< Of each rank; empty: they may run anywhere.
  bool prefix = true;                  ///< Lead each line with its rank: "[2] ".
  bool first_rank_direct = false;      ///< Rank 0 writes to our own streams, terminal and all.
  bool explained_exits =
      false;  ///< Ranks that exit say why themselves; only deaths are worth a line.
  std::optional<std::chrono::nanoseconds> timeout;  ///< Of the whole job.
  /// How long the others may go on by themselves after one has failed.
  std::chrono::nanoseconds patience{0};
};

/// How a job ended.
struct JobOutcome {
  struct Failure {
    std::uint32_t rank = 0;
    Ending ending;
  };

  std::vector<Ending> endings;     ///< Of each rank.
  std::optional<Failure> failure;  ///< The first rank to fail by itself.
  int interrupted_by = 0;          ///< The signal that ended the job; 0: none.
  bool timed_out = false;

  /// For the shell: of what ended the job, else of the first failure, else 0.
  int exit_status() const noexcept;
};

/// Runs the job and forwards what it says: whole lines to our standard output and error. Fails,
/// with nothing left running, if not all ranks could be started. Takes over the process's signals
/// meanwhile.
Result<JobOutcome> run_job(const JobOptions& options);

}  // namespace xylem::tools
