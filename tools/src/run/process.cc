// SPDX-License-Identifier: Apache-2.0
//
// Starts processes. The child reports a failed exec through a close-on-exec pipe; end-of-file means
// that the program runs.
#include "run/process.h"

#include "exit_code.h"
#include "xylem/base/unique_fd.h"

#include <fmt/format.h>

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <system_error>

namespace xylem::tools {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

/// Replaces the standard stream `standard` by `fd`, unless `fd` is negative.
bool redirect(int fd, int standard) { return fd < 0 || ::dup2(fd, standard) >= 0; }

bool bind_to(const topology::CpuSet& cpus) {
  if (cpus.empty()) return true;
  const auto count = static_cast<int>(cpus.ranges().back().last) + 1;
  const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(
      CPU_ALLOC(count), [](cpu_set_t* memory) { CPU_FREE(memory); });
  const std::size_t bytes = CPU_ALLOC_SIZE(count);
  CPU_ZERO_S(bytes, set.get());
  for (const topology::CpuSet::Range& range : cpus.ranges()) {
    for (std::uint32_t cpu = range.first; cpu <= range.last; ++cpu) {
      CPU_SET_S(cpu, bytes, set.get());
    }
  }
  return ::sched_setaffinity(0, bytes, set.get()) == 0;
}

/// The child's work up to exec. Returns errno on failure.
int become(const ProcessOptions& options, pid_t parent) {
  // The child must end with its parent, even if the parent died before prctl() took effect.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent) return ESRCH;
  if (::setpgid(0, 0) != 0 || !bind_to(options.cpus)) return errno;
  if (!redirect(options.input, STDIN_FILENO) || !redirect(options.output, STDOUT_FILENO) ||
      !redirect(options.error, STDERR_FILENO)) {
    return errno;
  }
  for (const auto& [name, value] : options.environment) {
    if (::setenv(name.c_str(), value.c_str(), 1) != 0) return errno;
  }
  // The process group is in the background. It must be able to write even if the terminal stops
  // background processes that write (stty tostop).
  std::signal(SIGTTOU, SIG_IGN);
  std::signal(SIGPIPE, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &options.signal_mask, nullptr);

  std::vector<char*> arguments;
  arguments.reserve(options.command.size() + 1);
  for (const std::string& argument : options.command) {
    arguments.push_back(
        const_cast<char*>(argument.c_str()));  // NOLINT: execvp's historic signature
  }
  arguments.push_back(nullptr);
  ::execvp(arguments.front(), arguments.data());
  return errno;
}

/// The error that the child reported: 0 if it runs the program, otherwise errno.
int exec_outcome(int fd) {
  int error = 0;
  ssize_t got = 0;
  do {
    got = ::read(fd, &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  return got == sizeof error ? error : 0;
}

/// Parent and state of a process, from the text of /proc/PID/stat: "42 (name) S 1 …". The name may
/// contain any characters, so fields are counted from the last parenthesis.
struct Kinship {
  pid_t parent = 0;
  char state = 'X';
};
std::optional<Kinship> kinship_of(const std::string& directory) {
  std::ifstream file("/proc/" + directory + "/stat");
  std::string text;
  if (!std::getline(file, text)) return std::nullopt;
  const auto end_of_name = text.rfind(") ");
  if (end_of_name == std::string::npos || end_of_name + 4 >= text.size()) return std::nullopt;
  Kinship kinship;
  kinship.state = text[end_of_name + 2];
  std::from_chars(text.data() + end_of_name + 4, text.data() + text.size(), kinship.parent);
  return kinship;
}

}  // namespace

int Ending::shell_status() const noexcept {
  return signal != 0 ? kExitSignal + signal : exit_status;
}

std::string Ending::to_string() const {
  if (signal == 0) return fmt::format("exited with status {}", exit_status);
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? fmt::format("was killed by signal {}", signal)
                         : fmt::format("was killed by signal {} (SIG{})", signal, name);
}

Result<Process> Process::start(const ProcessOptions& options) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return failure(Code::exhausted, fmt::format("cannot make a pipe: {}", reason(errno)));
  }
  UniqueFd outcome(ends[0]);
  UniqueFd report(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) {
    return failure(Code::exhausted, fmt::format("cannot start a process: {}", reason(errno)));
  }
  if (pid == 0) {
    const int error = become(options, parent);
    [[maybe_unused]] const auto written = ::write(report.get(), &error, sizeof error);
    ::_exit(kExitNotFound);
  }
  report.reset();
  if (const int error = exec_outcome(outcome.get()); error != 0) {
    ::waitpid(pid, nullptr, 0);
    return failure(error == ENOENT ? Code::invalid_argument : Code::unsupported,
                   fmt::format("cannot start {}: {}", options.command.front(), reason(error)));
  }
  return Process(pid);
}

std::optional<Ending> Process::ending() const {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return std::nullopt;
  }
  return info.si_code == CLD_EXITED ? Ending{info.si_status, 0} : Ending{0, info.si_status};
}

void Process::signal_group(int signal) const noexcept { ::kill(-pid_, signal); }

void Process::reap() noexcept { ::waitpid(pid_, nullptr, 0); }

std::vector<pid_t> live_children(pid_t other) {
  std::vector<pid_t> children;
  const std::unique_ptr<DIR, int (*)(DIR*)> processes(::opendir("/proc"), &::closedir);
  if (!processes) return children;
  const pid_t self = ::getpid();
  while (const dirent* entry = ::readdir(processes.get())) {
    pid_t pid = 0;
    const char* end = entry->d_name + std::strlen(entry->d_name);
    if (const auto [stop, error] = std::from_chars(entry->d_name, end, pid);
        error != std::errc() || stop != end || pid == other) {
      continue;
    }
    const auto kinship = kinship_of(entry->d_name);
    if (kinship && kinship->parent == self && kinship->state != 'Z') children.push_back(pid);
  }
  return children;
}

}  // namespace xylem::tools
