// SPDX-License-Identifier: Apache-2.0
//
// Process: one started program in a process group of its own. It dies with its parent, and it stays
// a zombie until it is reaped, so that its group's number cannot come to mean somebody else's
// processes.
#pragma once

#include "xylem/base/status.h"
#include "xylem/base/unique_fd.h"
#include "xylem/topology/cpu_set.h"

#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace xylem::tools {

/// How a process ended.
struct Ending {
  int exit_status = 0;
  int signal = 0;  ///< The signal that killed it; 0 if it exited.

  bool failed() const noexcept { return exit_status != 0 || signal != 0; }
  /// As a shell reports it: the exit status, or 128 plus the signal.
  int shell_status() const noexcept;
  /// "exited with status 2", "was killed by signal 9 (SIGKILL)".
  std::string to_string() const;
};

struct ProcessOptions {
  std::vector<std::string> command;  ///< Program, looked up in PATH, and its arguments.
  std::vector<std::pair<std::string, std::string>> environment;  ///< Added to the parent's.
  topology::CpuSet cpus;   ///< It may run on these; empty: on those of the parent.
  int input = -1;          ///< Becomes standard input; -1: the parent's.
  int output = -1;         ///< Becomes standard output; -1: the parent's.
  int error = -1;          ///< Becomes standard error; -1: the parent's.
  sigset_t signal_mask{};  ///< Signals blocked in the program.
};

/// Move-only; an empty one may only be assigned to.
class Process {
 public:
  /// Starts the program. One that cannot be started is an error here, not an ending:
  /// `invalid_argument` if there is none of that name, `unsupported` if it is no program that we
  /// may start, `exhausted` if no process could be made. Only for single-threaded parents.
  static Result<Process> start(const ProcessOptions& options);

  Process() noexcept = default;

  pid_t pid() const noexcept { return pid_; }
  /// Readable once the process has ended.
  int fd() const noexcept { return pidfd_.get(); }
  /// How it ended, if it has. Leaves it a zombie.
  std::optional<Ending> ending() const;
  /// Signals the whole group. Must not be called after reap().
  void signal_group(int signal) const noexcept;
  /// Forgets the ended process and its group.
  void reap() noexcept;

 private:
  Process(pid_t pid, UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}

  pid_t pid_ = 0;
  UniqueFd pidfd_;
};

/// Processes whose parent is this process, zombies left out.
std::vector<pid_t> live_children();

}  // namespace xylem::tools
