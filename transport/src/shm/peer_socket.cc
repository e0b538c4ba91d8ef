// SPDX-License-Identifier: Apache-2.0
#include "shm/peer_socket.h"

#include <fmt/format.h>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace xylem::transport::shm {
namespace {

constexpr std::size_t kMost = ReceivedMessage::kMostDescriptors;

struct Address {
  sockaddr_un un{};
  socklen_t bytes = 0;

  /// An address in the abstract name space of sockets: the socket has no file, and its name is
  /// released when it is closed.
  explicit Address(const Nonce& nonce) noexcept {
    const std::string name = fmt::format("xylem-{:016x}{:016x}", nonce[0], nonce[1]);
    un.sun_family = AF_UNIX;
    std::memcpy(un.sun_path + 1, name.data(), name.size());
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&un); }
};

}  // namespace

std::size_t descriptors_of(PeerMessage::Kind kind) noexcept {
  switch (kind) {
    case PeerMessage::Kind::hello:
    case PeerMessage::Kind::accept: return 2;
    case PeerMessage::Kind::share: return 1;
    case PeerMessage::Kind::forget: return 0;
  }
  return 0;
}

Result<PeerSocket> PeerSocket::open(const Nonce& nonce) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const Address address(nonce);
  const int on = 1;
  if (!socket || setsockopt(socket.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
      bind(socket.get(), address.get(), address.bytes) != 0) {
    return failure(Code::unsupported,
                   fmt::format("shared memory: no unix socket: {}", std::strerror(errno)));
  }
  return PeerSocket(std::move(socket));
}

PeerSocket::Sent PeerSocket::send(const Nonce& to,
                                  const PeerMessage& content,
                                  std::span<const int> descriptors) noexcept {
  Address address(to);
  PeerMessage copy = content;
  iovec data{&copy, sizeof copy};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMost * sizeof(int))> control{};
  msghdr message{};
  message.msg_name = &address.un;
  message.msg_namelen = address.bytes;
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  for (;;) {
    if (sendmsg(socket_.get(), &message, MSG_NOSIGNAL) >= 0) return Sent::done;
    if (errno == EINTR) continue;
    const bool is_full = errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS;
    return is_full ? Sent::later : Sent::no_such_peer;
  }
}

bool PeerSocket::is_alive(const Nonce& nonce) noexcept {
  const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const Address address(nonce);
  return !socket || connect(socket.get(), address.get(), address.bytes) == 0 ||
         errno != ECONNREFUSED;
}

std::optional<ReceivedMessage> PeerSocket::receive() noexcept {
  // The loop is bounded, since any process of the host can send any number of messages to this
  // socket.
  constexpr int kMostRefused = 64;
  for (int refused = 0; refused < kMostRefused; ++refused) {
    ReceivedMessage received;
    iovec data{&received.message, sizeof received.message};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(kMost * sizeof(int)) + CMSG_SPACE(sizeof(ucred))>
        control{};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    bool is_ours = false;
    for (cmsghdr* at = CMSG_FIRSTHDR(&message); at != nullptr; at = CMSG_NXTHDR(&message, at)) {
      if (at->cmsg_level != SOL_SOCKET) continue;
      if (at->cmsg_type == SCM_CREDENTIALS) {
        ucred who{};
        std::memcpy(&who, CMSG_DATA(at), sizeof who);
        is_ours = who.uid == geteuid();
        received.process = who.pid;
      } else if (at->cmsg_type == SCM_RIGHTS) {
        std::array<int, kMost> descriptors{};
        descriptors.fill(-1);
        const std::size_t bytes = at->cmsg_len - CMSG_LEN(0);
        std::memcpy(descriptors.data(), CMSG_DATA(at), std::min(bytes, sizeof descriptors));
        for (std::size_t i = 0; i < kMost; ++i) received.descriptors[i].reset(descriptors[i]);
      }
    }
    const auto given = static_cast<std::size_t>(
        std::ranges::count_if(received.descriptors, [](const UniqueFd& fd) { return bool{fd}; }));
    const bool is_whole = static_cast<std::size_t>(got) == sizeof received.message &&
                          given == descriptors_of(received.message.kind);
    if (is_ours && is_whole) return received;
  }
  return std::nullopt;
}

}  // namespace xylem::transport::shm
