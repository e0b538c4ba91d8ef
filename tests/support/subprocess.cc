// SPDX-License-Identifier: Apache-2.0
#include "support/subprocess.h"

#include "xylem/base/clock.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace xylem::test {

using std::chrono::milliseconds;

Process::Process(const std::vector<std::string>& arguments,
                 const std::map<std::string, std::string>& environment) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text(*variable);
    if (!text.starts_with("XYLEM_") && environment.count(text.substr(0, text.find('='))) == 0)
      variables.push_back(text);
  }
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  std::vector<char*> argv, envp;
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  for (const auto& variable : variables) envp.push_back(const_cast<char*>(variable.c_str()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  close(ends[1]);
  output_fd_ = ends[0];
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      output_fd_(std::exchange(other.output_fd_, -1)),
      output_(std::move(other.output_)) {}

Process::~Process() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (output_fd_ >= 0) close(output_fd_);
}

void Process::signal(int number) const { ::kill(pid_, number); }

bool Process::read_some(milliseconds limit) {
  pollfd descriptor{output_fd_, POLLIN, 0};
  if (poll(&descriptor, 1, static_cast<int>(limit.count())) <= 0) return true;
  char buffer[4096];
  const auto got = ::read(output_fd_, buffer, sizeof buffer);
  if (got <= 0) return false;
  output_.append(buffer, static_cast<std::size_t>(got));
  return true;
}

bool Process::wait_for_output(const std::string& text, milliseconds limit) {
  const Deadline deadline = Deadline::after(limit);
  while (output_.find(text) == std::string::npos) {
    if (deadline.passed() || !read_some(milliseconds(deadline.left_ms()))) break;
  }
  return output_.find(text) != std::string::npos;
}

Exit Process::wait(milliseconds limit) {
  const Deadline deadline = Deadline::after(limit);
  while (!deadline.passed() && read_some(milliseconds(deadline.left_ms()))) {
  }
  Exit exit;
  exit.ended = !deadline.passed();
  if (!exit.ended) ::kill(pid_, SIGKILL);
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  exit.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  exit.output = output_;
  return exit;
}

std::vector<Process> start_ranks(const TemporaryDirectory& directory,
                                 std::uint32_t ranks,
                                 const std::string& program,
                                 const std::vector<std::string>& arguments,
                                 const std::map<std::string, std::string>& environment) {
  std::vector<Process> processes;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    std::map<std::string, std::string> variables = environment;
    variables["XYLEM_RANK"] = std::to_string(rank);
    variables["XYLEM_SIZE"] = std::to_string(ranks);
    variables.try_emplace("XYLEM_RENDEZVOUS", "file://" + directory.path());
    variables.try_emplace("XYLEM_JOB", directory.path());
    variables.try_emplace("XYLEM_TUNING", "off");
    std::vector<std::string> command{std::string(XYLEM_TEST_BIN) + "/" + program};
    command.insert(command.end(), arguments.begin(), arguments.end());
    processes.emplace_back(command, variables);
  }
  return processes;
}

}  // namespace xylem::test
