// SPDX-License-Identifier: Apache-2.0
#include "xylem/base/file.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <system_error>
#include <thread>
#include <utility>

namespace xylem {
namespace {

constexpr std::array kWriteSignals = {SIGXFSZ, SIGPIPE};

std::string error_text(int error) { return std::generic_category().message(error); }

Status refused(std::string message) { return failure(Code::invalid_argument, std::move(message)); }

Status unreadable(int error) {
  return refused(fmt::format("cannot read it ({})", error_text(error)));
}

Status too_long(Bytes most) {
  return refused(fmt::format("it must be a file of at most {}", format_bytes(most)));
}

const char* kind_of(mode_t mode) noexcept {
  if (S_ISDIR(mode)) return "directory";
  if (S_ISFIFO(mode)) return "FIFO";
  if (S_ISSOCK(mode)) return "socket";
  return "device";
}

Status check_regular(const struct stat& facts, Bytes most) {
  if (!S_ISREG(facts.st_mode)) {
    return refused(fmt::format("it must be a regular file, not a {}", kind_of(facts.st_mode)));
  }
  return std::cmp_greater(facts.st_size, most.value) ? too_long(most) : Status();
}

Result<std::string> read_all(int fd, Bytes most) {
  constexpr std::uint64_t kStep = std::uint64_t{256} << 10;
  std::string text;
  for (;;) {
    const std::size_t had = text.size();
    text.resize(had + std::min(kStep, most.value + 1 - had));
    const ssize_t got = ::read(fd, text.data() + had, text.size() - had);
    const int error = errno;
    text.resize(had + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && error == EINTR) continue;
    if (got < 0) return unreadable(error);
    if (got == 0) return text;
    if (text.size() > most.value) return too_long(most);
  }
}

}  // namespace

UniqueFd open_promptly(const std::string& path, int flags, Deadline deadline, mode_t mode) {
  constexpr auto kPause = std::chrono::milliseconds(10);
  for (;;) {
    UniqueFd fd(::open(path.c_str(), flags | O_NONBLOCK | O_CLOEXEC | O_NOCTTY, mode));
    // The failed open() has made the kernel ask the lease holder to release the lease.
    const bool is_leased = !fd && errno == EWOULDBLOCK;
    if (!is_leased || deadline.passed()) return fd;
    std::this_thread::sleep_until(earlier(deadline, Deadline::after(kPause)).point());
  }
}

Result<std::optional<std::string>> read_regular_file(const std::string& path,
                                                     Bytes most,
                                                     Deadline deadline) {
  struct stat facts {};
  // Opening a FIFO or a device may have side effects, so the kind of file is checked first.
  if (::stat(path.c_str(), &facts) == 0) XYLEM_TRY(check_regular(facts, most));
  const UniqueFd fd = open_promptly(path, O_RDONLY, deadline);
  if (!fd && errno == ENOENT) return std::optional<std::string>();
  if (!fd || ::fstat(fd.get(), &facts) != 0) return unreadable(errno);
  XYLEM_TRY(check_regular(facts, most));
  XYLEM_TRY(std::string text, read_all(fd.get(), most));
  return std::optional(std::move(text));
}

Result<std::string> read_any_file(const std::string& path, Bytes most) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  return fd ? read_all(fd.get(), most) : unreadable(errno);
}

WriteSignalsBlocked::WriteSignalsBlocked() noexcept {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : kWriteSignals) ::sigaddset(&signals, signal);
  ::sigpending(&pending_before_);
  ::pthread_sigmask(SIG_BLOCK, &signals, &mask_before_);
}

WriteSignalsBlocked::~WriteSignalsBlocked() {
  const int error = errno;
  for (const int signal : kWriteSignals) {
    if (::sigismember(&pending_before_, signal) == 1) continue;
    sigset_t one;
    ::sigemptyset(&one);
    ::sigaddset(&one, signal);
    const timespec at_once{};
    while (::sigtimedwait(&one, nullptr, &at_once) < 0 && errno == EINTR) continue;
  }
  ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  errno = error;
}

std::string write_error_text(int error) {
  rlimit limit{};
  if (error != EFBIG || ::getrlimit(RLIMIT_FSIZE, &limit) != 0) return error_text(error);
  return fmt::format("{} (the limit on the size of files is {} bytes: raise ulimit -f)",
                     error_text(error), limit.rlim_cur);
}

}  // namespace xylem
