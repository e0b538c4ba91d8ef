// SPDX-License-Identifier: Apache-2.0
//
// Command: a program run by a test, with what it says and how it ends. Every wait has a deadline,
// and nothing of it outlives the test.
#pragma once

#include "xylem/base/clock.h"
#include "xylem/base/unique_fd.h"

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace xylem::test {

/// How a program ended and all that it said.
struct Finished {
  bool in_time = false;  ///< False: it was killed at the deadline.
  int exit_status = -1;  ///< -1 if a signal ended it.
  int signal = 0;
  std::string out, err;
};

class Command {
 public:
  using Variables = std::vector<std::pair<std::string, std::string>>;

  /// Starts a program in a process group of its own, with these variables added to ours.
  explicit Command(const std::vector<std::string>& arguments, const Variables& variables = {});
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  pid_t pid() const noexcept { return pid_; }
  /// Signals the program alone.
  void signal(int number) const;
  /// Writes to its standard input and closes that.
  void write(const std::string& text);
  /// Waits until it has said `text` on standard output; false at the deadline or its end.
  bool wait_for_output(const std::string& text, Deadline deadline);
  /// The same for a number of whole lines.
  bool wait_for_lines(std::ptrdiff_t count, Deadline deadline);
  /// Closes our end of its standard output, as a reader does that has enough.
  void stop_reading() { out_.reset(); }
  /// What it has said on standard output.
  const std::string& said() const noexcept { return finished_.out; }
  /// Waits for its end, reading what it says unless `silently`.
  Finished wait(Deadline deadline, bool silently = false);

 private:
  /// Reads what is there, waiting for it at most until the deadline; false when both streams are at
  /// their end.
  bool read_some(Deadline deadline);
  bool read_until(const std::function<bool()>& enough, Deadline deadline);

  pid_t pid_ = -1;
  UniqueFd in_, out_, err_, pidfd_;
  Finished finished_;
};

/// Runs a program to its end.
Finished run_command(const std::vector<std::string>& arguments,
                     const Command::Variables& variables = {},
                     std::chrono::seconds limit = std::chrono::seconds(30));

/// Waits until a process, anybody's, has ended.
bool wait_until_gone(pid_t pid, Deadline deadline);

}  // namespace xylem::test
