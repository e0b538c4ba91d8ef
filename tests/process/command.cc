// SPDX-License-Identifier: Apache-2.0
//
// Starts the programs of tests, reads their output, and ends them.
#include "process/command.h"

#include "xylem/base/check.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace xylem::test {
namespace {

UniqueFd open_pidfd(pid_t pid) {
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

[[noreturn]] void become(const std::vector<std::string>& arguments,
                         const Command::Variables& variables,
                         const Command::Preparation& prepare,
                         std::array<int, 3> streams) {
  ::setpgid(0, 0);
  for (int i = 0; i < 3; ++i) ::dup2(streams[static_cast<std::size_t>(i)], i);
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> raw;
  for (const std::string& argument : arguments) raw.push_back(const_cast<char*>(argument.c_str()));
  raw.push_back(nullptr);
  if (prepare && !prepare()) ::_exit(Command::kNotPrepared);
  ::execvp(raw.front(), raw.data());
  constexpr int kNotFound = 127;
  ::_exit(kNotFound);
}

}  // namespace

Command::Command(const std::vector<std::string>& arguments,
                 const Variables& variables,
                 const Preparation& prepare) {
  std::array<std::array<int, 2>, 3> pipes{};
  for (auto& ends : pipes) XYLEM_CHECK(::pipe2(ends.data(), O_CLOEXEC) == 0, errno);
  pid_ = ::fork();
  XYLEM_CHECK(pid_ >= 0, errno);
  if (pid_ == 0) become(arguments, variables, prepare, {pipes[0][0], pipes[1][1], pipes[2][1]});
  in_.reset(pipes[0][1]);
  out_.reset(pipes[1][0]);
  err_.reset(pipes[2][0]);
  ::close(pipes[0][0]);
  ::close(pipes[1][1]);
  ::close(pipes[2][1]);
  pidfd_ = open_pidfd(pid_);
  XYLEM_CHECK(static_cast<bool>(pidfd_), errno);
}

Command::~Command() {
  if (pid_ < 0) return;
  ::kill(-pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Command::signal(int number) const { ::kill(pid_, number); }

void Command::write(const std::string& text) {
  XYLEM_CHECK(::write(in_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  in_.reset();
}

bool Command::read_some(Deadline deadline) {
  std::array<pollfd, 2> watched{{{out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}}};
  if (!out_ && !err_) return false;
  ::poll(watched.data(), watched.size(), deadline.left_ms());
  const auto take = [](UniqueFd& stream, const pollfd& event, std::string& text) {
    if (!stream || event.revents == 0) return;
    std::array<char, 65536> buffer;
    const ssize_t got = ::read(stream.get(), buffer.data(), buffer.size());
    if (got <= 0) stream.reset();
    else text.append(buffer.data(), static_cast<std::size_t>(got));
  };
  take(out_, watched[0], finished_.out);
  take(err_, watched[1], finished_.err);
  return true;
}

bool Command::read_until(const std::function<bool()>& enough, Deadline deadline) {
  while (!enough()) {
    if (deadline.passed() || !read_some(deadline)) return false;
  }
  return true;
}

bool Command::wait_for_output(const std::string& text, Deadline deadline) {
  std::size_t from = 0;
  const auto found = [&] {
    if (finished_.out.find(text, from) != std::string::npos) return true;
    from = finished_.out.size() - std::min(finished_.out.size(), text.size());
    return false;
  };
  return read_until(found, deadline);
}

bool Command::wait_for_lines(std::ptrdiff_t count, Deadline deadline) {
  return read_until([&] { return std::ranges::count(finished_.out, '\n') >= count; }, deadline);
}

bool Command::wait_for_new_lines(std::ptrdiff_t count, Deadline deadline) {
  const auto bytes_read = [&] { return finished_.out.size() + finished_.err.size(); };
  for (std::size_t before = bytes_read();
       read_some(Deadline::after(std::chrono::milliseconds(0))) && bytes_read() != before;) {
    before = bytes_read();
  }
  return wait_for_lines(std::ranges::count(finished_.out, '\n') + count, deadline);
}

bool Command::wait_for_error(const std::string& text, Deadline deadline) {
  return read_until([&] { return finished_.err.find(text) != std::string::npos; }, deadline);
}

Finished Command::wait(Deadline deadline, bool silently) {
  in_.reset();
  while (!silently && !deadline.passed() && read_some(deadline)) {
  }
  pollfd ended{pidfd_.get(), POLLIN, 0};
  finished_.in_time = ::poll(&ended, 1, deadline.left_ms()) > 0;
  if (!finished_.in_time) ::kill(-pid_, SIGKILL);
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  if (WIFEXITED(status)) finished_.exit_status = WEXITSTATUS(status);
  else finished_.signal = WTERMSIG(status);
  return std::move(finished_);
}

Finished run_command(const std::vector<std::string>& arguments,
                     const Command::Variables& variables,
                     std::chrono::seconds limit,
                     const Command::Preparation& prepare) {
  return Command(arguments, variables, prepare).wait(Deadline::after(limit));
}

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream stat(entry.path() / "stat");
    std::string text;
    std::getline(stat, text);
    const auto end = text.rfind(") ");
    if (end != std::string::npos && std::stoi(text.substr(end + 4)) == parent) {
      children.push_back(std::stoi(name));
    }
  }
  std::ranges::sort(children);
  return children;
}

bool wait_until_gone(pid_t pid, Deadline deadline) {
  const UniqueFd pidfd = open_pidfd(pid);
  if (!pidfd) return errno == ESRCH;
  pollfd ended{pidfd.get(), POLLIN, 0};
  return ::poll(&ended, 1, deadline.left_ms()) > 0;
}

}  // namespace xylem::test
