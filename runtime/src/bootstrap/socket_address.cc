// SPDX-License-Identifier: Apache-2.0
//
// Socket addresses and the system's resolver.
#include "bootstrap/socket_address.h"

#include "bootstrap/service_thread.h"

#include <fmt/format.h>

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>

namespace xylem::runtime {
namespace {

struct Lookup {
  int error = 0;
  std::vector<SocketAddress> addresses;
};

Lookup look_up(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  Lookup lookup;
  lookup.error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (lookup.error != 0) return lookup;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family == AF_INET || entry->ai_family == AF_INET6) {
      lookup.addresses.emplace_back(entry->ai_addr);
    }
  }
  return lookup;
}

}  // namespace

SocketAddress::SocketAddress(const sockaddr* address) noexcept {
  const std::size_t size =
      address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  std::memcpy(&storage_, address, size);
}

SocketAddress SocketAddress::any(int family, std::uint16_t port) noexcept {
  SocketAddress address;
  address.storage_.ss_family = static_cast<sa_family_t>(family);
  return address.with_port(port);
}

Result<SocketAddress> SocketAddress::parse(const std::string& address, std::uint16_t port) {
  const Lookup lookup = look_up(address, port, AI_NUMERICHOST);
  if (lookup.addresses.empty()) {
    return failure(Code::invalid_argument,
                   fmt::format("\"{}\" is not a numeric IPv4 or IPv6 address", address));
  }
  return lookup.addresses.front();
}

Result<SocketAddress> SocketAddress::of_socket(int fd) {
  SocketAddress address;
  socklen_t size = sizeof(address.storage_);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage_), &size) != 0) {
    return failure(Code::internal, "getsockname: " + std::generic_category().message(errno));
  }
  return address;
}

socklen_t SocketAddress::size() const noexcept {
  return family() == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

std::uint16_t SocketAddress::port() const noexcept {
  // Both families keep the port in the same place.
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  return ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
}

SocketAddress SocketAddress::with_port(std::uint16_t port) const noexcept {
  SocketAddress address(*this);
  reinterpret_cast<sockaddr_in*>(&address.storage_)->sin_port = htons(port);
  return address;
}

bool SocketAddress::is_loopback() const noexcept {
  constexpr std::uint32_t kLoopbackNet = 127;
  if (family() == AF_INET) {
    const auto* const v4 = reinterpret_cast<const sockaddr_in*>(&storage_);
    return ntohl(v4->sin_addr.s_addr) >> 24 == kLoopbackNet;
  }
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr);
}

bool SocketAddress::is_any() const noexcept { return same_host(any(family(), 0)); }

bool SocketAddress::is_link_local() const noexcept {
  return family() == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr);
}

bool SocketAddress::is_private() const noexcept {
  if (family() == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr;
    return (v6.s6_addr[0] & 0xfe) == 0xfc;
  }
  struct Block {
    std::uint32_t first;
    int bits;
  };
  constexpr std::array<Block, 4> kBlocks = {
      {{0x0a000000, 8}, {0xac100000, 12}, {0xc0a80000, 16}, {0x64400000, 10}}};
  const std::uint32_t address =
      ntohl(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr.s_addr);
  return std::ranges::any_of(kBlocks, [address](const Block& block) {
    return (address ^ block.first) >> (32 - block.bits) == 0;
  });
}

bool SocketAddress::same_host(const SocketAddress& other) const noexcept {
  if (family() != other.family()) return false;
  if (family() == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(&other.storage_)->sin_addr.s_addr;
  }
  return IN6_ARE_ADDR_EQUAL(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr,
                            &reinterpret_cast<const sockaddr_in6*>(&other.storage_)->sin6_addr);
}

std::string SocketAddress::host() const {
  std::array<char, NI_MAXHOST> text{};
  if (::getnameinfo(raw(), size(), text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return "?";
  }
  return text.data();
}

std::string SocketAddress::to_string() const { return HostPort{host(), port()}.to_string(); }

bool is_loopback_host(const std::string& host) {
  const auto numeric = SocketAddress::parse(host, 0);
  return numeric ? numeric->is_loopback() : host == "localhost";
}

Result<std::vector<SocketAddress>> resolve(const HostPort& place, Deadline deadline) {
  if (const auto numeric = SocketAddress::parse(place.host, place.port))
    return std::vector{*numeric};

  std::string reason = "the resolver did not answer in time";
  const auto purpose = fmt::format("look up \"{}\"", place.host);
  for (;;) {
    XYLEM_TRY(auto lookup, call_until(deadline, purpose,
                                      [place] { return look_up(place.host, place.port, 0); }));
    if (lookup && !lookup->addresses.empty()) return std::move(lookup->addresses);
    if (lookup) reason = ::gai_strerror(lookup->error);
    // The pause limits the load on the name server.
    const auto next = earlier(deadline, Deadline::after(std::chrono::milliseconds(500)));
    std::this_thread::sleep_until(next.point());
    if (deadline.passed()) break;
  }
  return failure(Code::timed_out,
                 fmt::format("host name \"{}\" has no address: {}; name a host that every rank can "
                             "look up, or give its address",
                             place.host, reason));
}

}  // namespace xylem::runtime
