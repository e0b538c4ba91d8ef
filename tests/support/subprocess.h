// SPDX-License-Identifier: Apache-2.0
//
// Ranks as real processes. Starts programs of bin/ with XYLEM_ variables, collects their output and
// waits for them with a deadline. Processes that a test leaves running are killed.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace xylem::test {

/// A new directory for one test. It is removed at the end, with everything in it.
class PrivateDirectory {
 public:
  PrivateDirectory();
  ~PrivateDirectory();
  PrivateDirectory(const PrivateDirectory&) = delete;
  PrivateDirectory& operator=(const PrivateDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Exit {
  bool ended = false;  ///< False if the deadline passed and the process was killed.
  int status = -1;     ///< Exit status, or 128 + the signal that ended it.
  std::string output;  ///< Standard output and standard error together.
};

/// One process, which is killed at the end if it still runs.
class Process {
 public:
  Process(const std::vector<std::string>& arguments,
          const std::map<std::string, std::string>& environment);
  ~Process();
  Process(Process&& other) noexcept;
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  Process& operator=(Process&&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  /// Reads output until `text` appears. Returns false if the process ends or `limit` passes first.
  bool wait_for_output(const std::string& text, std::chrono::milliseconds limit);
  Exit wait(std::chrono::milliseconds limit);

 private:
  bool read_some(std::chrono::milliseconds limit);

  pid_t pid_ = -1;
  int output_fd_ = -1;
  std::string output_;
};

/// Starts the ranks of one job, which find each other through `directory`. Each runs `program` of
/// bin/ with `arguments` and this process's environment, changed by `environment`.
std::vector<Process> start_ranks(const PrivateDirectory& directory,
                                 std::uint32_t ranks,
                                 const std::string& program,
                                 const std::vector<std::string>& arguments,
                                 const std::map<std::string, std::string>& environment = {});

}  // namespace xylem::test
