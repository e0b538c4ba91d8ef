// SPDX-License-Identifier: Apache-2.0
//
// Rendezvous: the place where the ranks of a job find each other, as XYLEM_RENDEZVOUS names it.
#pragma once

#include "xylem/base/status.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

namespace xylem::runtime {

/// A host and port: "node1:29400", "10.0.0.1:29400", "[fd00::1]:29400".
struct HostPort {
  std::string host;  ///< A name or an address, without brackets.
  std::uint16_t port = 0;

  /// "host:port"; an IPv6 address is in brackets.
  std::string to_string() const;
  friend bool operator==(const HostPort&, const HostPort&) = default;
};
Result<HostPort> parse_host_port(std::string_view text);

/// A directory that all ranks can write to.
struct SharedDirectory {
  std::string path;  ///< Absolute.
  friend bool operator==(const SharedDirectory&, const SharedDirectory&) = default;
};

using Rendezvous = std::variant<HostPort, SharedDirectory>;

/// Reads "tcp://host:port" or "file:///directory".
Result<Rendezvous> parse_rendezvous(std::string_view text);

}  // namespace xylem::runtime
