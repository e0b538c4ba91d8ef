// SPDX-License-Identifier: Apache-2.0
//
// Reading of rendezvous addresses.
#include "rendezvous.h"

#include <fmt/format.h>

#include <charconv>

namespace xylem::runtime {
namespace {

constexpr std::string_view kTcp = "tcp://";
constexpr std::string_view kFile = "file://";
/// The longest name that DNS allows.
constexpr std::size_t kLongestHost = 253;

Status refused(std::string message) { return failure(Code::invalid_argument, std::move(message)); }

bool is_host(std::string_view host, bool bracketed) {
  if (host.empty() || host.size() > kLongestHost) return false;
  for (const char c : host) {
    const bool alphanumeric =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    // '%' separates the scope of a link-local address.
    const bool also = bracketed ? c == ':' || c == '.' || c == '%' || c == '-' || c == '_'
                                : c == '.' || c == '-' || c == '_';
    if (!alphanumeric && !also) return false;
  }
  return true;
}

}  // namespace

std::string HostPort::to_string() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

Result<HostPort> parse_host_port(std::string_view text) {
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return refused("it must be host:port");
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);

  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (!bracketed && host.find(':') != std::string_view::npos) {
    return refused("an IPv6 address must be in brackets, as in [fd00::1]:29400");
  }
  if (!is_host(host, bracketed))
    return refused("its host must be a name, an IPv4 or an [IPv6] address");

  std::uint16_t port = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, port);
  if (error != std::errc() || stop != end || port == 0) {
    return refused("its port must be a whole number from 1 to 65535");
  }
  return HostPort{std::string(host), port};
}

Result<Rendezvous> parse_rendezvous(std::string_view text) {
  if (text.starts_with(kTcp)) {
    XYLEM_TRY(auto place, parse_host_port(text.substr(kTcp.size())));
    return Rendezvous(std::move(place));
  }
  if (text.starts_with(kFile)) {
    const auto path = text.substr(kFile.size());
    if (!path.starts_with('/')) return refused("its directory must be absolute: file:///directory");
    return Rendezvous(SharedDirectory{std::string(path)});
  }
  return refused("it must be tcp://host:port or file:///directory");
}

}  // namespace xylem::runtime
