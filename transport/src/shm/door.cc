// SPDX-License-Identifier: Apache-2.0
#include "shm/door.h"

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

constexpr std::size_t kMost = Visitor::kMostDescriptors;

struct Address {
  sockaddr_un un{};
  socklen_t bytes = 0;

  /// An address in the abstract socket name space, which has no files and whose names end with
  /// their sockets.
  explicit Address(const Nonce& nonce) noexcept {
    const std::string name = fmt::format("xylem-{:016x}{:016x}", nonce[0], nonce[1]);
    un.sun_family = AF_UNIX;
    std::memcpy(un.sun_path + 1, name.data(), name.size());
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&un); }
};

}  // namespace

std::size_t descriptors_of(Introduction::Kind kind) noexcept {
  switch (kind) {
    case Introduction::Kind::hello:
    case Introduction::Kind::accept: return 2;
    case Introduction::Kind::share: return 1;
    case Introduction::Kind::forget: return 0;
  }
  return 0;
}

Result<Door> Door::open(const Nonce& nonce) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const Address address(nonce);
  const int on = 1;
  if (!socket || setsockopt(socket.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
      bind(socket.get(), address.get(), address.bytes) != 0) {
    return failure(Code::unsupported,
                   fmt::format("shared memory: no unix socket: {}", std::strerror(errno)));
  }
  return Door(std::move(socket));
}

Door::Sent Door::introduce(const Nonce& to,
                           const Introduction& introduction,
                           std::span<const int> descriptors) noexcept {
  Address address(to);
  Introduction copy = introduction;
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
    return is_full ? Sent::later : Sent::nobody;
  }
}

bool Door::is_anybody_behind(const Nonce& door) noexcept {
  const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const Address address(door);
  return !socket || connect(socket.get(), address.get(), address.bytes) == 0 ||
         errno != ECONNREFUSED;
}

std::optional<Visitor> Door::next() noexcept {
  // Any process of the host can see the name, so a flood of messages must not keep us here.
  constexpr int kMostTurnedAway = 64;
  for (int turned_away = 0; turned_away < kMostTurnedAway; ++turned_away) {
    Visitor visitor;
    iovec data{&visitor.introduction, sizeof visitor.introduction};
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
        visitor.process = who.pid;
      } else if (at->cmsg_type == SCM_RIGHTS) {
        std::array<int, kMost> descriptors{};
        descriptors.fill(-1);
        const std::size_t bytes = at->cmsg_len - CMSG_LEN(0);
        std::memcpy(descriptors.data(), CMSG_DATA(at), std::min(bytes, sizeof descriptors));
        for (std::size_t i = 0; i < kMost; ++i) visitor.descriptors[i].reset(descriptors[i]);
      }
    }
    const auto given = static_cast<std::size_t>(
        std::ranges::count_if(visitor.descriptors, [](const UniqueFd& fd) { return bool{fd}; }));
    const bool is_whole = static_cast<std::size_t>(got) == sizeof visitor.introduction &&
                          given == descriptors_of(visitor.introduction.kind);
    if (is_ours && is_whole) return visitor;
  }
  return std::nullopt;
}

}  // namespace xylem::transport::shm
