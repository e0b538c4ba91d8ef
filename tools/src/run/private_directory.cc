// SPDX-License-Identifier: Apache-2.0
//
// Makes and removes the directory in which ranks find each other.
#include "run/private_directory.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <system_error>

namespace xylem::tools {
namespace {

Status failed(std::string_view what) {
  return failure(Code::exhausted,
                 fmt::format("cannot {}: {}", what, std::generic_category().message(errno)));
}

/// Waits until the other end of the pipe `parent` is closed, then removes the directory. Runs in a
/// child process that belongs to another session and ignores all signals, so that signals that end
/// the parent do not end this child.
[[noreturn]] void remove_at_end(const std::filesystem::path& path, UniqueFd parent) {
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::setsid();
  // Close inherited descriptors, so that a reader of the parent's output does not wait for this
  // process.
  ::dup2(parent.get(), STDIN_FILENO);
  ::close_range(STDIN_FILENO + 1, std::numeric_limits<unsigned>::max(), 0);
  char none = 0;
  while (::read(STDIN_FILENO, &none, 1) < 0 && errno == EINTR) {
  }
  // If the parent is killed, its ranks are killed, too. Until then a rank may still be writing into
  // the directory, so try again if removing fails.
  constexpr int kMostAttempts = 100;
  constexpr int kPauseMs = 10;
  std::error_code error;
  for (int i = 0; i < kMostAttempts; ++i) {
    std::filesystem::remove_all(path, error);
    if (!error) break;
    ::poll(nullptr, 0, kPauseMs);
  }
  ::_exit(0);
}

}  // namespace

Result<PrivateDirectory> PrivateDirectory::create() {
  std::error_code error;
  const auto parent = std::filesystem::temp_directory_path(error);
  if (error) {
    return failure(Code::invalid_argument,
                   fmt::format("there is no directory for temporary files ({}): set TMPDIR to one",
                               error.message()));
  }
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return failed("make a pipe");
  UniqueFd parent_ends(ends[0]);
  UniqueFd alive(ends[1]);
  // mkdtemp makes the directory with mode 0700, and fails if the name exists.
  std::string path = (parent / "xylem-XXXXXX").string();
  if (::mkdtemp(path.data()) == nullptr) {
    return failure(Code::exhausted,
                   fmt::format("cannot make a directory in {}: {}; TMPDIR may name another place",
                               parent.string(), std::generic_category().message(errno)));
  }
  const pid_t remover = ::fork();
  if (remover < 0) {
    const Status status = failed("start a process");
    ::rmdir(path.c_str());
    return status;
  }
  if (remover == 0) {
    alive.reset();
    remove_at_end(path, std::move(parent_ends));
  }
  return PrivateDirectory(std::filesystem::path(path), std::move(alive), remover);
}

PrivateDirectory::~PrivateDirectory() {
  if (remover_ == 0) return;
  std::error_code ignored;  // A destructor cannot report an error.
  std::filesystem::remove_all(path_, ignored);
  alive_.reset();
  ::waitpid(remover_, nullptr, 0);
}

}  // namespace xylem::tools
