// SPDX-License-Identifier: Apache-2.0
//
// Stream sockets.
#include "bootstrap/socket.h"

#include "xylem/base/silence.h"

#include <fmt/format.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <system_error>

namespace xylem::runtime {
namespace {

void set_option(int fd, int level, int option, int value) noexcept {
  // Only options for tuning are set here: a socket that refuses one still works.
  ::setsockopt(fd, level, option, &value, sizeof(value));
}

Result<UniqueFd> make_socket(int family) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) {
    const Code code = errno == EAFNOSUPPORT ? Code::unsupported : Code::exhausted;
    return failure(code, fmt::format("cannot open a socket: {}", error_text(errno)));
  }
  return fd;
}

bool is_transient(int error) noexcept {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

Status broken(std::string_view doing, int error) {
  const bool gone = error == ECONNRESET || error == EPIPE || error == ECONNREFUSED;
  return failure(gone ? Code::peer_lost : Code::link_lost,
                 fmt::format("{}: {}", doing, error_text(error)));
}

}  // namespace

std::string error_text(int error) { return std::generic_category().message(error); }

Result<UniqueFd> listen_on(const SocketAddress& address) {
  XYLEM_TRY(UniqueFd fd, make_socket(address.family()));
  // Allows binding a port whose last connections are still in TIME_WAIT.
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.family() == AF_INET6) set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(fd.get(), address.raw(), address.size()) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
    const int error = errno;
    const Code code = error == EADDRINUSE ? Code::busy : Code::invalid_argument;
    return failure(code,
                   fmt::format("cannot listen on {}: {}", address.to_string(), error_text(error)));
  }
  return fd;
}

Result<UniqueFd> accept_from(int listener) {
  for (;;) {
    UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) {
      set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
      return fd;
    }
    switch (errno) {
      case EAGAIN: return UniqueFd();
      case EMFILE:
      case ENFILE:
      case ENOBUFS:
      case ENOMEM:
        return failure(
            Code::exhausted,
            fmt::format("cannot accept a connection: {}; raise ulimit -n", error_text(errno)));
      case EBADF:
      case EINVAL:
      case ENOTSOCK: return failure(Code::internal, "accept: " + error_text(errno));
      default:
        // accept(2) reports the error of a pending connection that has failed already. Other
        // connections may be pending.
        continue;
    }
  }
}

Result<UniqueFd> start_connect(const SocketAddress& address) {
  XYLEM_TRY(UniqueFd fd, make_socket(address.family()));
  set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  if (::connect(fd.get(), address.raw(), address.size()) != 0 && errno != EINPROGRESS &&
      errno != EINTR) {
    return broken(fmt::format("cannot connect to {}", address.to_string()), errno);
  }
  return fd;
}

int connect_outcome(int fd) noexcept {
  int error = 0;
  socklen_t size = sizeof(error);
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

Result<UniqueFd> connect_to(const SocketAddress& address, Deadline deadline) {
  XYLEM_TRY(UniqueFd fd, start_connect(address));
  XYLEM_TRY(wait_for(fd.get(), POLLOUT, deadline));
  const int error = connect_outcome(fd.get());
  if (error != 0) return broken(fmt::format("cannot connect to {}", address.to_string()), error);
  return fd;
}

Status wait_for(int fd, short events, Deadline deadline) {
  pollfd entry{fd, events, 0};
  for (;;) {
    const int ready = ::poll(&entry, 1, deadline.left_ms());
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return failure(Code::internal, "poll: " + error_text(errno));
    if (ready == 0 && deadline.passed()) return failure(Code::timed_out, "no answer in time");
  }
}

Status send_all(int fd, std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (is_transient(errno)) {
      XYLEM_TRY(wait_for(fd, POLLOUT, deadline));
    } else {
      return broken("send", errno);
    }
  }
  return {};
}

Status receive_all(int fd, std::span<std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t received = ::recv(fd, bytes.data(), bytes.size(), 0);
    if (received > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(received));
    } else if (received == 0) {
      return failure(Code::peer_lost, "the connection was closed");
    } else if (is_transient(errno)) {
      XYLEM_TRY(wait_for(fd, POLLIN, deadline));
    } else {
      return broken("receive", errno);
    }
  }
  return {};
}

void fail_early(int fd) noexcept {
  // The kernel repeats the SYN after 1 s, again after 2 s more, and then waits 4 s for an answer.
  set_option(fd, IPPROTO_TCP, TCP_SYNCNT, 2);
}

void keep_alive(int fd) noexcept {
  constexpr int kSeconds = Silence::kProbeInterval.count();
  // The kernel ends the connection when this number of probes in a row is not answered. The number
  // is one more than fit into Silence::kLongest, since the network may fail just when the first
  // probe is sent.
  constexpr int kProbes = Silence::kLongest / Silence::kProbeInterval + 1;
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, kSeconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, kSeconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  Silence::limit_probe_interval(fd);
}

}  // namespace xylem::runtime
