// SPDX-License-Identifier: Apache-2.0
//
// Ranks as real processes. Starts programs of bin/ with XYLEM_ variables, collects their output and
// waits for them with a deadline. Processes that a test leaves running are killed.
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
  int status = -1;     ///< Exit status, or 128 + the signal that ended it.
  std::string output;  ///< Standard output, then standard error.
};

/// One process, which is killed at the end if it still runs. It has no XYLEM_ variables but those
/// of `environment`.
class Process {
 public:
  Process(const std::vector<std::string>& arguments,
          const std::map<std::string, std::string>& environment);

  pid_t pid() const { return command_->pid(); }
  void signal(int number) const { command_->signal(number); }
  /// Reads output until `text` appears. Returns false if the process ends or `limit` passes first.
  bool wait_for_output(const std::string& text, std::chrono::milliseconds limit) {
    return command_->wait_for_output(text, Deadline::after(limit));
  }
  Exit wait(std::chrono::milliseconds limit);

 private:
  std::unique_ptr<Command> command_;
};

/// Starts the ranks of one job, which find each other through `directory`. Each runs `program` of
/// bin/ with `arguments` and this process's environment, changed by `environment`.
std::vector<Process> start_ranks(const TemporaryDirectory& directory,
                                 std::uint32_t ranks,
                                 const std::string& program,
                                 const std::vector<std::string>& arguments,
                                 const std::map<std::string, std::string>& environment = {});

}  // namespace xylem::test
