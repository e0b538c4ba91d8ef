// SPDX-License-Identifier: Apache-2.0
//
// Which network interface a rank listens on at the start, and why; and which other interfaces may
// carry payload (rails.h). The choice is a pure function of the interfaces found, the setting and
// the route, so that tests can describe any machine.
//
//   XYLEM_INTERFACES    restricts the candidates; if it names several, the first is chosen
//   rendezvous known    the interface by which the kernel would send to the rendezvous
//   rendezvous unknown  the interface of the default route
//   no such route       the first interface that is up; if there is none, loopback
//
// Loopback, and bridges of containers and virtual machines, are chosen only if they are named, lead
// to the rendezvous, or nothing else is up.
#pragma once

#include "bootstrap/socket_address.h"
#include "xylem/base/clock.h"
#include "xylem/base/status.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace xylem::runtime {

/// One address of an interface that is up; an interface with several addresses appears several
/// times.
struct Interface {
  std::string name;
  SocketAddress address;
  std::string network{};  ///< The network of the address: "10.0.0.0/24". Empty if it is unknown.
  /// Speed and MTU of a network card: "1000 Mb/s, MTU 1500". Empty for a virtual interface, such as
  /// a VLAN, a bond or a tunnel, and if the speed is unknown.
  std::string card{};
};

/// The interfaces of this host that are up, without link-local IPv6 addresses.
Result<std::vector<Interface>> list_interfaces();

/// The name, rate, MTU and networks of an interface of this host, such as
/// "eth0 1000 Mb/s, MTU 1500, 10.0.0.0/24". A fact that the system does not report is left out.
std::string port_text(const std::string& interface);

struct InterfaceChoice {
  Interface chosen;
  std::string reason;  ///< For people: "routes to node1:29400".
  /// The other interfaces that may carry payload. They have an address of the same family as the
  /// chosen one. Without a setting that names them, both must be network cards of equal speed and
  /// MTU, and both addresses private or both public.
  std::vector<Interface> others{};
};

/// What is known about the host at which the ranks find each other.
struct RendezvousHost {
  std::string name;                    ///< The name of the host, as it was set; empty if unknown.
  std::optional<SocketAddress> route;  ///< Source address to reach the host; if unknown, any host.
  /// True if the rendezvous host is a loopback address, so that all ranks are on this host.
  bool is_loopback = false;
};

/// Chooses an interface. `setting` is XYLEM_INTERFACES.
Result<InterfaceChoice> choose_interface(const std::vector<Interface>& all,
                                         std::string_view setting,
                                         const RendezvousHost& rendezvous);

/// Finds the route to `host` (a name or an address; empty if unknown). Sends nothing.
Result<RendezvousHost> find_rendezvous_host(const std::string& host, Deadline deadline);

}  // namespace xylem::runtime
