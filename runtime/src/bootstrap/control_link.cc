// SPDX-License-Identifier: Apache-2.0
//
// One control connection.
#include "bootstrap/control_link.h"

#include "bootstrap/socket.h"

#include <fmt/format.h>

#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace xylem::runtime {
namespace {

/// A pidfd of the peer's process. Empty if the peer is this process, or is not in this PID
/// namespace.
UniqueFd watch_process(const HostIdentity& self, const HostIdentity& peer) {
  if (!self.same_processes(peer) || self.pid == peer.pid) return {};
  // The system call is made by its number, since glibc before 2.36 has no <sys/pidfd.h>. The kernel
  // sets close-on-exec.
  UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(peer.pid), 0)));
  // The start time is checked after pidfd_open(): if the process id still belongs to the peer now,
  // it also did then, so the descriptor is the peer's.
  if (process && start_ticks(peer.pid) != peer.started) process.reset();
  return process;
}

Status ended(int error) {
  return failure(Code::peer_lost, error == 0           ? "its connection was closed"
                                  : error == ETIMEDOUT ? Silence::text(Silence::kLongest +
                                                                       2 * Silence::kProbeInterval)
                                                       : error_text(error));
}

}  // namespace

ControlLink::ControlLink(UniqueFd fd,
                         const Member& peer,
                         const HostIdentity& self,
                         const FrameKeys& keys)
    : fd_(std::move(fd)),
      process_(watch_process(self, peer.host)),
      rank_(peer.rank),
      is_remote_(!self.same_network(peer.host)),
      writer_(keys.outgoing),
      records_(keys.incoming) {
  keep_alive(fd_.get());
}

void ControlLink::push(const ControlFrame& frame) {
  ByteVector plain;
  write_frame(plain, frame);
  writer_.write(queue_, plain);
  messages_pushed_ += std::holds_alternative<MessageFrame>(frame);
}

Status ControlLink::flush() {
  while (queued() > 0) {
    const ssize_t sent = ::send(fd_.get(), queue_.data() + sent_, queued(), MSG_NOSIGNAL);
    if (sent >= 0) {
      sent_ += static_cast<std::size_t>(sent);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      return ended(errno);
    }
  }
  // Sent bytes are erased only in large pieces, so that not every send moves the rest of a long
  // queue.
  if (sent_ == queue_.size() || sent_ > queue_.size() / 2) {
    queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(sent_));
    sent_ = 0;
  }
  if (queued() <= kMostQueued) return {};
  return failure(Code::peer_lost,
                 fmt::format("it has left {} bytes of control messages unread", queued()));
}

Result<bool> ControlLink::receive() {
  // The number of reads is limited, so that a peer that sends without end does not delay the
  // handling of other links.
  constexpr int kMostPieces = 8;
  std::array<std::byte, 32 * 1024> piece;
  for (int i = 0; i < kMostPieces; ++i) {
    const ssize_t got = ::recv(fd_.get(), piece.data(), piece.size(), 0);
    if (got > 0) {
      ByteVector plain;
      const Status whole =
          records_.read(std::span(piece).first(static_cast<std::size_t>(got)), plain);
      reader_.append(plain);
      if (!whole) return whole;
    } else if (got == 0) {
      return ended(0);
    } else if (errno == EAGAIN) {
      return false;
    } else if (errno != EINTR) {
      return ended(errno);
    }
  }
  return true;
}

Status ControlLink::check_silence(Clock::time_point now) {
  const auto silent = silence_.silent_for(fd_.get(), now);
  return silent ? failure(Code::peer_lost, Silence::text(*silent)) : Status();
}

void ControlLink::finish_sending() noexcept { ::shutdown(fd_.get(), SHUT_WR); }

bool ControlLink::all_acknowledged() const noexcept {
  int unacknowledged = 0;
  return queued() == 0 &&
         (::ioctl(fd_.get(), SIOCOUTQ, &unacknowledged) != 0 || unacknowledged == 0);
}

void ControlLink::close() noexcept {
  if (!fd_) return;
  ::shutdown(fd_.get(), SHUT_RDWR);
  fd_.reset();
  process_.reset();
}

}  // namespace xylem::runtime
