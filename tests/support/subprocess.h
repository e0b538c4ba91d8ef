// SPDX-License-Identifier: Apache-2.0
//
// Ranks as real processes: starts programs of bin/ with XYLEM_ variables, collects their output,
// and waits with a deadline. What a test leaves running is killed.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace xylem::test {

/// A directory of the test's own, removed with everything in it.
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
  bool ended = false;  ///< False: the deadline passed and it was killed.
  int status = -1;     ///< Exit status, or 128 + signal.
  std::string output;  ///< Standard output and error.
};

/// One process.
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
  /// Reads output until `text` appears; false if the process ended or the time is over.
  bool wait_for_output(const std::string& text, std::chrono::milliseconds limit);
  Exit wait(std::chrono::milliseconds limit);

 private:
  bool read_some(std::chrono::milliseconds limit);

  pid_t pid_ = -1;
  int output_fd_ = -1;
  std::string output_;
};

/// The ranks of one job, meeting in a private directory: `program` of bin/ with `arguments`,
/// environment over the test's own.
std::vector<Process> start_ranks(const PrivateDirectory& directory,
                                 std::uint32_t ranks,
                                 const std::string& program,
                                 const std::vector<std::string>& arguments,
                                 const std::map<std::string, std::string>& environment = {});

}  // namespace xylem::test
