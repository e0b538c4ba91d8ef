// SPDX-License-Identifier: Apache-2.0
//
// Ranks as processes. Starts programs of bin/ with XYLEM_ variables, collects their output and
// waits for them with a deadline. Processes that still run when the test ends are killed.
#pragma once

#include "process/command.h"
#include "support/temporary_directory.h"

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace xylem::test {

struct Exit {
  int status = -1;     ///< Exit status, or 128 + the signal that ended the process.
  std::string output;  ///< Standard output, then standard error.
};

/// One process. If it still runs, the destructor kills it. Of the XYLEM_ variables, it has only
/// those in `environment`.
class Process {
 public:
  Process(const std::vector<std::string>& arguments,
          const std::map<std::string, std::string>& environment);

  pid_t pid() const { return command_->pid(); }
  void signal(int number) const { command_->signal(number); }
  /// Reads output until `text` appears. Returns false if the process ends, or `limit` passes,
  /// before `text` appears.
  bool wait_for_output(const std::string& text, std::chrono::milliseconds limit) {
    return command_->wait_for_output(text, Deadline::after(limit));
  }
  Exit wait(std::chrono::milliseconds limit);

 private:
  std::unique_ptr<Command> command_;
};

/// Starts the ranks of one job, which find each other through `directory`. Each rank runs `program`
/// of bin/ with `arguments`. It has the environment of this process, changed by `environment`.
std::vector<Process> start_ranks(const TemporaryDirectory& directory,
                                 std::uint32_t ranks,
                                 const std::string& program,
                                 const std::vector<std::string>& arguments,
                                 const std::map<std::string, std::string>& environment = {});

}  // namespace xylem::test
