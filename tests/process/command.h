// SPDX-License-Identifier: Apache-2.0
//
// Command: a program that a test runs. It captures the program's output and its exit status. Every
// wait has a deadline, and the program and its children do not outlive the test.
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

/// How a program ended, and its output.
struct Finished {
  bool in_time = false;  ///< False if the program was killed at the deadline.
  int exit_status = -1;  ///< -1 if a signal ended the program.
  int signal = 0;
  std::string out, err;
};

class Command {
 public:
  using Variables = std::vector<std::pair<std::string, std::string>>;
  /// Runs in the child process before it executes the program. Returns false on failure.
  using Preparation = std::function<bool()>;
  static constexpr int kNotPrepared = 125;  ///< The exit status if the preparation fails.

  /// Starts a program in a new process group. Adds `variables` to the environment of this process.
  explicit Command(const std::vector<std::string>& arguments,
                   const Variables& variables = {},
                   const Preparation& prepare = {});
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  pid_t pid() const noexcept { return pid_; }
  /// Sends a signal to the program, but not to its children.
  void signal(int number) const;
  /// Writes `text` to the program's standard input, and then closes it.
  void write(const std::string& text);
  /// Waits until `text` appears on standard output. Returns false if the deadline passes, or the
  /// program ends, before `text` appears.
  bool wait_for_output(const std::string& text, Deadline deadline);
  /// Waits until standard output has `count` whole lines. Otherwise like wait_for_output().
  bool wait_for_lines(std::ptrdiff_t count, Deadline deadline);
  /// Waits until the program writes `count` lines to standard output in addition to all that it has
  /// written before the call. Otherwise like wait_for_output().
  bool wait_for_new_lines(std::ptrdiff_t count, Deadline deadline);
  /// Waits until `text` appears on standard error. Otherwise like wait_for_output().
  bool wait_for_error(const std::string& text, Deadline deadline);
  /// Closes the reading end of the program's standard output, like a reader that stops early.
  void stop_reading() { out_.reset(); }
  /// The standard output read so far.
  const std::string& said() const noexcept { return finished_.out; }
  /// Waits until the program ends. If `silently` is false, reads its output meanwhile.
  Finished wait(Deadline deadline, bool silently = false);

 private:
  /// Reads the available output. If there is none, waits for output until the deadline. Returns
  /// false when both streams are at their end.
  bool read_some(Deadline deadline);
  bool read_until(const std::function<bool()>& enough, Deadline deadline);

  pid_t pid_ = -1;
  UniqueFd in_, out_, err_, pidfd_;
  Finished finished_;
};

/// Runs a program until it ends, or until `limit` passes.
Finished run_command(const std::vector<std::string>& arguments,
                     const Command::Variables& variables = {},
                     std::chrono::seconds limit = std::chrono::seconds(30),
                     const Command::Preparation& prepare = {});

/// The child processes of a process, in the order of their numbers.
std::vector<pid_t> children_of(pid_t parent);

/// Waits until a process has ended. The process need not be a child of the caller.
bool wait_until_gone(pid_t pid, Deadline deadline);

}  // namespace xylem::test
