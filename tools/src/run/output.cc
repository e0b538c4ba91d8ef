// SPDX-License-Identifier: Apache-2.0
//
// Reading and writing without blocking. If poll() reports room in a pipe, there is room for at
// least PIPE_BUF bytes, so writes of at most that size do not block even on a blocking descriptor.
#include "run/output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>

namespace xylem::tools {
namespace {

constexpr std::size_t kMostBacklog = std::size_t{1} << 20;
/// The number of consecutive reads from one stream before the other streams get their turn.
constexpr int kFairShare = 16;

bool writable(int fd) {
  pollfd watched{fd, POLLOUT, 0};
  return ::poll(&watched, 1, 0) > 0;
}

}  // namespace

bool Sink::full() const noexcept { return backlog_.size() >= kMostBacklog; }

void Sink::flush() {
  std::size_t done = 0;
  while (error_ == 0 && done < backlog_.size() && writable(fd_)) {
    const auto size = std::min<std::size_t>(backlog_.size() - done, PIPE_BUF);
    const ssize_t written = ::write(fd_, backlog_.data() + done, size);
    if (written >= 0) {
      done += static_cast<std::size_t>(written);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
  backlog_.erase(0, done);
  if (error_ != 0) backlog_.clear();
}

bool OutputStream::read_some() {
  std::array<char, 65536> buffer;
  const ssize_t got = ::read(source_.get(), buffer.data(), buffer.size());
  if (got < 0) return errno == EINTR;
  if (got == 0) {
    sink_->append(lines_.finish());
    source_.reset();
    return false;
  }
  sink_->append(lines_.feed({buffer.data(), static_cast<std::size_t>(got)}));
  return true;
}

void OutputStream::forward() {
  for (int i = 0; i < kFairShare && open() && !sink_->full() && read_some(); ++i) sink_->flush();
}

void OutputStream::finish() {
  while (open() && read_some()) sink_->flush();
  if (open()) sink_->append(lines_.finish());
  source_.reset();
}

}  // namespace xylem::tools
