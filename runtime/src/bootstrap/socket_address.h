// SPDX-License-Identifier: Apache-2.0
//
// SocketAddress: an IPv4 or IPv6 address with a port; and the lookup of names within a deadline.
#pragma once

#include "rendezvous.h"
#include "xylem/base/clock.h"
#include "xylem/base/status.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace xylem::runtime {

class SocketAddress {
 public:
  SocketAddress() noexcept = default;
  explicit SocketAddress(const sockaddr* address) noexcept;
  /// Every address of this host, of both families if `family` is AF_INET6.
  static SocketAddress any(int family, std::uint16_t port) noexcept;
  /// Parses a numeric address; IPv6 is without brackets and may have a %scope.
  static Result<SocketAddress> parse(const std::string& address, std::uint16_t port);
  /// The address that a socket is bound to.
  static Result<SocketAddress> of_socket(int fd);

  const sockaddr* raw() const noexcept { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const noexcept;
  int family() const noexcept { return storage_.ss_family; }
  std::uint16_t port() const noexcept;
  SocketAddress with_port(std::uint16_t port) const noexcept;

  bool is_loopback() const noexcept;
  /// True for an address that any() makes.
  bool is_any() const noexcept;
  bool is_link_local() const noexcept;
  /// True for addresses that are not reachable from the Internet: RFC 1918, RFC 6598, RFC 4193.
  bool is_private() const noexcept;
  bool same_host(const SocketAddress& other) const noexcept;

  /// "10.0.0.1", "fd00::1", "fe80::1%eth0".
  std::string host() const;
  /// "10.0.0.1:29400", "[fd00::1]:29400".
  std::string to_string() const;

 private:
  sockaddr_storage storage_{};
};

/// True if `host` means "this host alone": a loopback address or localhost. False for other names,
/// even if they resolve to loopback: a host may map its own name to loopback (127.0.1.1 on Debian)
/// although other hosts reach it at another address.
bool is_loopback_host(const std::string& host);

/// All addresses of a host, in the system's order of preference. Names are looked up on a separate
/// thread, since the system's resolver takes no deadline. An unknown name is looked up again until
/// the deadline, because the names of a job's hosts may be published only while the job starts.
/// Fails with timed_out, or with `exhausted` if the thread cannot be started.
Result<std::vector<SocketAddress>> resolve(const HostPort& place, Deadline deadline);

}  // namespace xylem::runtime
