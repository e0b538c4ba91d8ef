// SPDX-License-Identifier: Apache-2.0
//
// Receives signals through signalfd.
#include "run/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace xylem::tools {

Result<Signals> Signals::take() {
  sigset_t watched;
  sigset_t former;
  ::sigemptyset(&watched);
  ::sigaddset(&watched, SIGCHLD);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction former_action {};
    ::sigaction(signal, nullptr, &former_action);
    // nohup makes a command ignore SIGHUP, and a shell makes its background commands ignore SIGINT.
    if (former_action.sa_handler != SIG_IGN) ::sigaddset(&watched, signal);
  }
  ::sigprocmask(SIG_BLOCK, &watched, &former);
  UniqueFd fd(::signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) {
    const int error = errno;
    ::sigprocmask(SIG_SETMASK, &former, nullptr);
    return failure(Code::exhausted,
                   "cannot watch for signals: " + std::generic_category().message(error));
  }
  std::signal(SIGPIPE, SIG_IGN);
  // A process inherits from its parent that SIGCHLD is ignored. Then the kernel would discard the
  // exit statuses of its children.
  std::signal(SIGCHLD, SIG_DFL);
  return Signals(std::move(fd), former);
}

Signals::~Signals() {
  if (fd_) ::sigprocmask(SIG_SETMASK, &former_mask_, nullptr);
}

std::optional<int> Signals::next() const noexcept {
  signalfd_siginfo info{};
  if (::read(fd_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace xylem::tools
