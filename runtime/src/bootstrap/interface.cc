// SPDX-License-Identifier: Apache-2.0
//
// Choice of the network interface.
#include "bootstrap/interface.h"

#include "bootstrap/socket.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <memory>
#include <utility>

namespace xylem::runtime {
namespace {

/// The parts of XYLEM_INTERFACES, which is "a,b" or "^a,b".
struct Filter {
  bool avoid = false;
  std::vector<std::string_view> names;

  explicit Filter(std::string_view setting) : avoid(setting.starts_with('^')) {
    std::string_view rest = avoid ? setting.substr(1) : setting;
    while (!rest.empty()) {
      const auto comma = rest.find(',');
      names.push_back(rest.substr(0, comma));
      rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    }
  }
  bool names_one(std::string_view name) const {
    return std::ranges::find(names, name) != names.end();
  }
  bool allows(std::string_view name) const { return names.empty() || names_one(name) != avoid; }
  /// True if the user named the interfaces to use.
  bool includes() const { return !avoid && !names.empty(); }
};

/// True for interfaces whose network does not leave this host: those of containers and of virtual
/// machines.
bool is_host_only(std::string_view name) {
  constexpr std::array<std::string_view, 8> kPrefixes = {"docker", "br-",  "virbr",   "veth",
                                                         "cni",    "cali", "flannel", "podman"};
  return std::ranges::any_of(kPrefixes,
                             [name](std::string_view prefix) { return name.starts_with(prefix); });
}

/// The interfaces that the setting allows: in the order in which the setting names them, or, if it
/// names none to use, in the system's order.
std::vector<Interface> candidates_of(const std::vector<Interface>& all, const Filter& filter) {
  std::vector<Interface> candidates;
  if (!filter.includes()) {
    std::ranges::copy_if(all, std::back_inserter(candidates),
                         [&](const Interface& each) { return filter.allows(each.name); });
    return candidates;
  }
  for (const std::string_view name : filter.names) {
    std::ranges::copy_if(all, std::back_inserter(candidates),
                         [name](const Interface& each) { return each.name == name; });
  }
  return candidates;
}

Status none_left(const std::vector<Interface>& all, std::string_view setting) {
  if (all.empty()) {
    return failure(Code::invalid_argument,
                   "this host has no network interface that is up and has an address, not even lo, "
                   "and ranks find each other over one: ip link set lo up");
  }
  std::vector<std::string> names;
  for (const Interface& each : all) {
    if (std::ranges::find(names, each.name) == names.end()) names.push_back(each.name);
  }
  return failure(Code::invalid_argument,
                 fmt::format("XYLEM_INTERFACES \"{}\" leaves no interface that is up and has an "
                             "address: this host has {}",
                             setting, fmt::join(names, ", ")));
}

using AddressList = std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)>;

Result<AddressList> list_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return failure(Code::internal, "getifaddrs: " + error_text(errno));
  }
  return AddressList(list, &::freeifaddrs);
}

/// The bytes of an IP address; empty for other addresses.
std::vector<std::uint8_t> ip_bytes(const sockaddr* address) {
  const auto bytes = [](const auto& field) {
    const auto* const begin = reinterpret_cast<const std::uint8_t*>(&field);
    return std::vector<std::uint8_t>(begin, begin + sizeof field);
  };
  if (address == nullptr) return {};
  if (address->sa_family == AF_INET) {
    return bytes(reinterpret_cast<const sockaddr_in*>(address)->sin_addr);
  }
  if (address->sa_family == AF_INET6) {
    return bytes(reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
  }
  return {};
}

/// The network of an address, as "10.0.0.0/24". Empty for other than IP addresses, and for
/// link-local ones.
std::string network_of(const ifaddrs& entry) {
  std::vector<std::uint8_t> network = ip_bytes(entry.ifa_addr);
  const std::vector<std::uint8_t> mask = ip_bytes(entry.ifa_netmask);
  if (network.empty() || network.size() != mask.size()) return {};
  if (SocketAddress(entry.ifa_addr).is_link_local()) return {};
  int prefix = 0;
  for (std::size_t i = 0; i < network.size(); ++i) {
    network[i] &= mask[i];
    prefix += std::popcount(mask[i]);
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  ::inet_ntop(entry.ifa_addr->sa_family, network.data(), text.data(), text.size());
  return fmt::format("{}/{}", text.data(), prefix);
}

/// A fact of the system about an interface; empty if it has none.
std::string fact_of(const std::string& interface, const char* name) {
  std::string word;
  std::ifstream("/sys/class/net/" + interface + "/" + name) >> word;
  return word;
}

/// The speed of an interface in Mb/s. Empty for a virtual interface, which reports none, or -1.
std::string speed_of(const std::string& interface) {
  std::string speed = fact_of(interface, "speed");
  return speed.starts_with('-') ? std::string() : speed;
}

/// See Interface::card.
std::string card_of(const std::string& interface) {
  if (::access(("/sys/class/net/" + interface + "/device").c_str(), F_OK) != 0) return {};
  const std::string speed = speed_of(interface);
  return speed.empty() ? speed : fmt::format("{} Mb/s, MTU {}", speed, fact_of(interface, "mtu"));
}

/// See InterfaceChoice::others. An interface with several addresses is listed once.
std::vector<Interface> others_like(const Interface& chosen,
                                   const std::vector<Interface>& candidates,
                                   const Filter& filter) {
  std::vector<Interface> others;
  if (chosen.address.is_loopback()) return others;
  for (const Interface& each : candidates) {
    const bool is_usable =
        filter.includes() || (!each.card.empty() && each.card == chosen.card &&
                              each.address.is_private() == chosen.address.is_private());
    const auto is_known = [&](const Interface& known) { return known.name == each.name; };
    if (is_usable && !each.address.is_loopback() && !is_known(chosen) &&
        std::ranges::none_of(others, is_known) &&
        each.address.family() == chosen.address.family()) {
      others.push_back(each);
    }
  }
  return others;
}

}  // namespace

Result<std::vector<Interface>> list_interfaces() {
  XYLEM_TRY(const auto list, list_addresses());
  std::vector<Interface> found;
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    const sockaddr* const address = entry->ifa_addr;
    if (address == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    if (address->sa_family != AF_INET && address->sa_family != AF_INET6) continue;
    const SocketAddress place(address);
    if (place.is_link_local()) continue;
    found.push_back({entry->ifa_name, place, network_of(*entry), card_of(entry->ifa_name)});
  }
  return found;
}

std::string port_text(const std::string& interface) {
  std::string text = interface;
  if (const std::string speed = speed_of(interface); !speed.empty()) text += " " + speed + " Mb/s";
  if (const std::string mtu = fact_of(interface, "mtu"); !mtu.empty()) text += ", MTU " + mtu;
  const auto list = list_addresses();
  if (!list) return text;
  for (const ifaddrs* entry = list->get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_name != interface) continue;
    if (const std::string network = network_of(*entry); !network.empty()) text += ", " + network;
  }
  return text;
}

Result<InterfaceChoice> choose_interface(const std::vector<Interface>& all,
                                         std::string_view setting,
                                         const RendezvousHost& rendezvous) {
  const Filter filter(setting);
  const std::vector<Interface> candidates = candidates_of(all, filter);
  if (candidates.empty()) return none_left(all, setting);

  const auto choice = [&](const Interface& chosen, std::string reason) {
    return InterfaceChoice{chosen, std::move(reason), others_like(chosen, candidates, filter)};
  };
  const auto routed = std::ranges::find_if(candidates, [&](const Interface& each) {
    return rendezvous.route && each.address.same_host(*rendezvous.route);
  });
  const bool has_route = routed != candidates.end();
  if (filter.includes()) {
    const auto& best =
        has_route && routed->name == candidates.front().name ? *routed : candidates.front();
    return choice(best, fmt::format("named by XYLEM_INTERFACES \"{}\"", setting));
  }
  // The rendezvous host's name may resolve to loopback because it is this host's own name
  // (127.0.1.1 on Debian). Other hosts cannot reach such an address.
  if (has_route && (rendezvous.is_loopback || !routed->address.is_loopback())) {
    const std::string what =
        rendezvous.name.empty() ? "the default route" : "routes to " + rendezvous.name;
    return choice(*routed, what);
  }
  const auto first_if = [&](auto&& accept) { return std::ranges::find_if(candidates, accept); };
  auto found = first_if([](const Interface& each) {
    return !each.address.is_loopback() && !is_host_only(each.name);
  });
  if (found != candidates.end()) {
    return choice(*found, rendezvous.name.empty()
                              ? "the first that is up; there is no default route"
                              : "the first that is up, on the host of " + rendezvous.name);
  }
  found = first_if([](const Interface& each) { return each.address.is_loopback(); });
  if (found == candidates.end()) found = candidates.begin();
  return choice(*found, "no other interface is up: all ranks must be on this host");
}

Result<RendezvousHost> find_rendezvous_host(const std::string& host, Deadline deadline) {
  // Any port will do: connecting a datagram socket only asks the kernel for the route. Without a
  // rendezvous, documentation addresses (RFC 5737, RFC 3849) stand for any other host.
  constexpr std::uint16_t kDiscard = 9;
  RendezvousHost rendezvous;
  rendezvous.name = host;
  std::vector<SocketAddress> targets;
  if (host.empty()) {
    for (const char* const everywhere : {"203.0.113.1", "2001:db8::1"}) {
      XYLEM_TRY(const SocketAddress target, SocketAddress::parse(everywhere, kDiscard));
      targets.push_back(target);
    }
  } else {
    XYLEM_TRY(targets, resolve(HostPort{host, kDiscard}, deadline));
    rendezvous.is_loopback = is_loopback_host(host);
  }
  for (const SocketAddress& target : targets) {
    const UniqueFd probe(::socket(target.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!probe || ::connect(probe.get(), target.raw(), target.size()) != 0) continue;
    if (auto route = SocketAddress::of_socket(probe.get())) {
      rendezvous.route = *route;
      // If the name has several addresses, an address that other hosts can reach is better.
      if (!route->is_loopback()) break;
    }
  }
  return rendezvous;
}

}  // namespace xylem::runtime
