// SPDX-License-Identifier: Apache-2.0
//
// Cluster: several hosts, the rails that their NICs form, and facts about the network between them.
#pragma once

#include "xylem/base/status.h"
#include "xylem/topology/topology.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace xylem::topology {

/// Facts about the network between the hosts, as a user states them.
struct NetworkFacts {
  /// The total bandwidth of the hosts' NICs, divided by the bandwidth of the network; at least 1.
  double oversubscription = 1;
  std::optional<double> latency_us;  ///< The latency of an empty message from host to host.
  /// The rate of one NIC. Set if the network is slower than the NICs, or if the NICs do not report
  /// their rate.
  std::optional<GBps> rail_rate;

  friend bool operator==(const NetworkFacts&, const NetworkFacts&) = default;
};

/// Reads clauses in any order, such as "oversubscription 2, latency 3 us, rail 200 Gb/s". Empty
/// text yields the default facts.
Result<NetworkFacts> read_network(std::string_view text);

/// One NIC of every host: the NICs at the same position in NicAssignment::rails. So a rail is the
/// same network even on hosts that number or name their NICs differently.
struct Rail {
  std::vector<std::uint32_t> nics;  ///< For each host, the index of its NIC.
  std::optional<GBps> rate;         ///< The lowest rate among its NICs and the network.

  friend bool operator==(const Rail&, const Rail&) = default;
};

struct Cluster {
  std::vector<Topology> hosts;
  NetworkFacts network;
  /// There are as many rails as the host with the fewest rails has.
  std::vector<Rail> rails;

  /// The rate at which one host can send to others over all rails while all hosts send; absent if
  /// the rate of a rail is unknown.
  std::optional<GBps> host_rate() const;
};

/// Makes a cluster of these hosts. Fails with invalid_argument if there are no hosts.
Result<Cluster> make_cluster(std::vector<Topology> hosts, const NetworkFacts& network = {});

}  // namespace xylem::topology
