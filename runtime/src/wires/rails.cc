// SPDX-License-Identifier: Apache-2.0
#include "wires/rails.h"

#include "bootstrap/socket.h"
#include "bootstrap/wire_format.h"
#include "xylem/base/unique_fd.h"

#include <fmt/format.h>

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace xylem::runtime {
namespace {

/// For how long a host tries to connect to the next one. The kernel repeats a lost packet after 1 s
/// and after 3 s.
constexpr std::chrono::seconds kLongest{4};

/// Where the first rank of a host listens, in the order of the networks. Port 0 in a network at
/// which it cannot listen.
struct Listening {
  std::vector<UniqueFd> sockets;
  std::vector<std::uint16_t> ports;
};

Listening listen_in(const std::vector<std::string>& networks, const Hosts& hosts) {
  Listening all;
  for (const std::string& network : networks) {
    std::uint16_t port = 0;
    if (const auto address =
            SocketAddress::parse(hosts.port_in(hosts.rank(), network)->address, 0)) {
      auto socket = listen_on(*address);
      const auto bound =
          socket ? SocketAddress::of_socket(socket->get()) : Result<SocketAddress>(socket.status());
      if (bound) {
        port = bound->port();
        all.sockets.push_back(*std::move(socket));
      }
    }
    all.ports.push_back(port);
  }
  return all;
}

/// Why this host cannot connect to that of rank `next`, in the order of the networks; empty for a
/// network over which it can. The kernel of the other host accepts the connection.
std::vector<std::string> why_apart(const std::vector<std::string>& networks,
                                   const Hosts& hosts,
                                   std::uint32_t next,
                                   ByteSpan ports_of_next) {
  WireReader reader(ports_of_next);
  std::vector<SocketAddress> addresses;
  std::vector<Result<UniqueFd>> sockets;
  for (const std::string& network : networks) {
    const auto port = reader.number<std::uint16_t>();
    const auto address = SocketAddress::parse(hosts.port_in(next, network)->address, port);
    sockets.push_back(address ? start_connect(*address) : Result<UniqueFd>(address.status()));
    addresses.push_back(address ? *address : SocketAddress());
  }
  const Deadline deadline = Deadline::after(kLongest);
  const auto& peers = hosts.peers();
  std::vector<std::string> why;
  for (std::size_t i = 0; i < sockets.size(); ++i) {
    Status status = sockets[i].status();
    if (status) status = wait_for(sockets[i]->get(), POLLOUT, deadline);
    const int outcome = status ? connect_outcome(sockets[i]->get()) : 0;
    if (outcome != 0) status = failure(Code::link_lost, error_text(outcome));
    why.push_back(status
                      ? std::string()
                      : fmt::format("{} cannot reach {} at {}: {}", peers[hosts.rank()].host,
                                    peers[next].host, addresses[i].to_string(), status.message()));
  }
  return why;
}

/// The networks over which each host has connected to the next one.
Result<std::vector<std::string>> connected(ControlPlane& control,
                                           const Hosts& hosts,
                                           const std::vector<std::string>& networks,
                                           const Logger& logger,
                                           Deadline deadline) {
  const bool takes_part = hosts.is_first(hosts.rank());
  Listening listening;
  ByteVector own_ports;
  if (takes_part) {
    listening = listen_in(networks, hosts);
    for (const std::uint16_t port : listening.ports) WireWriter(own_ports).number(port);
  }
  XYLEM_TRY(const auto all_ports, control.all_gather(own_ports, deadline));
  ByteVector own_answer;
  if (takes_part) {
    std::uint32_t next = hosts.rank();
    do next = (next + 1) % control.size();
    while (!hosts.is_first(next));
    for (const std::string& why : why_apart(networks, hosts, next, all_ports[next]))
      WireWriter(own_answer).text(why);
  }
  XYLEM_TRY(const auto answers, control.all_gather(own_answer, deadline));
  std::vector<std::string> first_reason(networks.size());
  for (std::uint32_t rank = 0; rank < control.size(); ++rank) {
    if (!hosts.is_first(rank)) continue;
    WireReader reader(answers[rank]);
    for (std::string& reason : first_reason) {
      const std::string_view why = reader.text();
      if (reason.empty()) reason = why;
    }
    if (!reader.ok())
      return failure(
          Code::internal,
          fmt::format("rank {} did not send over which networks it reaches the next host", rank),
          rank);
  }
  std::vector<std::string> usable;
  for (std::size_t i = 0; i < networks.size(); ++i) {
    if (first_reason[i].empty()) {
      usable.push_back(networks[i]);
    } else if (hosts.rank() == 0) {
      logger.warn(
          fmt::format("the network {} carries no payload: {}; XYLEM_INTERFACES selects the "
                      "interfaces to use",
                      networks[i], first_reason[i]));
    }
  }
  return usable;
}

/// Logs the networks of rank 0's ports that not every rank can use.
void log_others(const Hosts& hosts, const Logger& logger) {
  const auto& peers = hosts.peers();
  for (const Port& port : peers[0].ports) {
    std::uint32_t rank = 0;
    while (rank < peers.size() && hosts.port_in(rank, port.network) != nullptr) ++rank;
    if (rank == peers.size()) continue;
    logger.info(
        fmt::format("the network {} of {} carries no payload: rank {} on {} has no "
                    "such interface in it",
                    port.network, port.interface, rank, peers[rank].host));
  }
}

}  // namespace

Status choose_rails(ControlPlane& control, Hosts& hosts, const Logger& logger, Deadline deadline) {
  const bool have_rdma = std::ranges::any_of(hosts.peers(), &PeerFacts::has_rdma);
  if (have_rdma || !hosts.has_several_ranks_on_a_host()) return {};
  std::vector<std::string> networks = hosts.shared_networks();
  if (hosts.rank() == 0 && !networks.empty()) log_others(hosts, logger);
  if (networks.size() < 2) return {};
  XYLEM_TRY(networks, connected(control, hosts, networks, logger, deadline));
  if (networks.size() < 2) return {};
  hosts.set_rails(std::move(networks));
  const Port& own = hosts.port(hosts.rank());
  logger.info(fmt::format("payload between hosts goes over {}", own.text));
  XYLEM_TRY(const SocketAddress address, SocketAddress::parse(own.address, 0));
  control.listen_for_payload_at(address);
  return {};
}

}  // namespace xylem::runtime
