// SPDX-License-Identifier: Apache-2.0
//
// Cluster: several hosts, the rails that their NICs make, and what is known of the network between.
#pragma once

#include "xylem/base/status.h"
#include "xylem/topology/topology.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace xylem::topology {

/// What somebody says of the network between the hosts.
struct NetworkFacts {
  /// How many times more the hosts' NICs could send than the network carries; at least 1.
  double oversubscription = 1;
  std::optional<double> latency_us;  ///< Of an empty message from host to host.
  std::optional<GBps> rail_rate;  ///< Of one NIC, where the network is slower or NICs do not tell.

  friend bool operator==(const NetworkFacts&, const NetworkFacts&) = default;
};

/// Reads clauses in any order, "oversubscription 2, latency 3 us, rail 200 Gb/s"; the empty text
/// says nothing.
Result<NetworkFacts> read_network(std::string_view text);

/// One NIC of every host: those with the same place among the NICs that serve GPUs. So rails are
/// the same network on hosts that number or name their NICs differently.
struct Rail {
  std::vector<std::uint32_t> nics;  ///< Of each host, an index.
  std::optional<GBps> rate;         ///< Of its slowest NIC, or of the network if that is less.

  friend bool operator==(const Rail&, const Rail&) = default;
};

struct Cluster {
  std::vector<Topology> hosts;
  NetworkFacts network;
  /// As many as the host with the fewest has.
  std::vector<Rail> rails;

  /// What a host sends to others, all rails together, while all hosts do; absent if a rail does not
  /// tell.
  std::optional<GBps> host_rate() const;
};

/// Fails with invalid_argument without hosts.
Result<Cluster> make_cluster(std::vector<Topology> hosts, const NetworkFacts& network = {});

}  // namespace xylem::topology
