// SPDX-License-Identifier: Apache-2.0
//
// run_job: runs one program as n ranks on this host, until no process of the job is left.
//
//   running ──a rank fails──► failing ──grace passes──► ending ──3 s pass──► killing
//      └──Ctrl-C, time-out, output lost, only children of ranks left──►┘
//
// In `failing` the other ranks may continue for JobOptions::failure_grace. In `ending` every
// process of the job has received SIGTERM, and in `killing` SIGKILL. A job is over when no
// descendant of its processes is alive, including descendants that have moved to another process
// group or session.
#pragma once

#include "run/process.h"
#include "xylem/base/status.h"
#include "xylem/topology/cpu_set.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace xylem::tools {

struct JobOptions {
  std::string speaker = "xylem run";  ///< Prefix of the lines that the launcher itself writes.
  std::vector<std::string> command;
  std::uint32_t ranks = 1;
  /// Variables that are added to the environment of all ranks.
  std::vector<std::pair<std::string, std::string>> variables;
  std::vector<topology::CpuSet> cpus;  ///< One for each rank; empty: ranks may run anywhere.
  bool prefix = true;                  ///< Begin each line with its rank, such as "[2] ".
  bool first_rank_direct = false;      ///< Rank 0 inherits the launcher's standard streams.
  /// Ranks print why they exit, so only deaths by a signal are reported.
  bool explained_exits = false;
  std::optional<std::chrono::nanoseconds> timeout;  ///< The time-out of the whole job.
  /// How long the other ranks may continue after a rank has failed.
  std::chrono::nanoseconds failure_grace{0};
};

/// How a job ended.
struct JobOutcome {
  struct Failure {
    std::uint32_t rank = 0;
    Ending ending;
  };

  std::vector<Ending> endings;     ///< endings[r]: how rank r ended.
  std::optional<Failure> failure;  ///< The first rank that failed by itself.
  int interrupted_by = 0;          ///< The signal that ended the job; 0: none.
  bool timed_out = false;
  bool output_lost = false;  ///< Lines of the ranks could not be written.

  /// The exit status for the shell: that of an interruption or time-out, otherwise of the first
  /// failure, otherwise kExitOutput if output was lost, otherwise 0.
  int exit_status() const noexcept;
};

/// Runs the job and forwards its output, in whole lines, to this process's standard output and
/// error. If a rank cannot be started, fails after it has ended all processes of the job. Handles
/// this process's signals while the job runs (Signals).
Result<JobOutcome> run_job(const JobOptions& options);

}  // namespace xylem::tools
