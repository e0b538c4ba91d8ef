// SPDX-License-Identifier: Apache-2.0
//
// Process: a started program in a process group of its own. It dies with its parent. After its end
// it stays a zombie until it is reaped, so that the number of its group cannot be reused for other
// processes.
#pragma once

#include "xylem/base/status.h"
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
  /// The status that a shell reports: the exit status, or 128 plus the signal.
  int shell_status() const noexcept;
  /// "exited with status 2", "was killed by signal 9 (SIGKILL)".
  std::string to_string() const;
};

struct ProcessOptions {
  std::vector<std::string> command;  ///< Program, looked up in PATH, and its arguments.
  /// Variables that are added to the parent's environment.
  std::vector<std::pair<std::string, std::string>> environment;
  topology::CpuSet cpus;   ///< CPUs on which it may run; empty: those of the parent.
  int input = -1;          ///< Becomes standard input; -1: the parent's.
  int output = -1;         ///< Becomes standard output; -1: the parent's.
  int error = -1;          ///< Becomes standard error; -1: the parent's.
  sigset_t signal_mask{};  ///< Signals blocked in the program.
};

/// A default-constructed Process may only be assigned to. SIGCHLD announces the end of a process.
class Process {
 public:
  /// Starts the program. Failing to start it is an error here and not an ending: `invalid_argument`
  /// if there is no program with that name, `unsupported` if it may not be executed, `exhausted` if
  /// no process could be made. The calling process must have a single thread.
  static Result<Process> start(const ProcessOptions& options);

  Process() noexcept = default;

  pid_t pid() const noexcept { return pid_; }
  /// How the process ended, if it has ended. Does not reap it.
  std::optional<Ending> ending() const;
  /// Sends a signal to the whole group. Must not be called after reap().
  void signal_group(int signal) const noexcept;
  /// Reaps the ended process.
  void reap() noexcept;

 private:
  explicit Process(pid_t pid) noexcept : pid_(pid) {}

  pid_t pid_ = 0;
};

/// Children of this process, except zombies and `other`.
std::vector<pid_t> live_children(pid_t other);

}  // namespace xylem::tools
