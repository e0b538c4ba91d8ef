// SPDX-License-Identifier: Apache-2.0
//
// PeerFacts: what the ranks exchange about themselves at start.
#pragma once

#include "bootstrap/interface.h"
#include "config.h"
#include "progress/cores.h"
#include "xylem/base/log.h"
#include "xylem/base/status.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace xylem::runtime {

/// A network interface that may carry payload between hosts.
struct Port {
  std::string interface;  ///< "eth0"
  std::string network;    ///< Interface::network
  std::string address;    ///< Numeric, as from SocketAddress::host().
  std::string text;       ///< port_text()

  bool operator==(const Port&) const = default;
};

struct PeerFacts {
  std::string host;           ///< Host name, for people.
  std::uint64_t kernel = 0;   ///< Hash of boot id, network and IPC namespaces, and user. Only ranks
                              ///< with the same hash can share memory.
  std::uint64_t machine = 0;  ///< Hash of XYLEM_MACHINE or, if it is not set, of the boot id. Ranks
                              ///< with the same hash share cores.
  std::vector<Port> ports;    ///< First the one that the control plane uses; may be empty.
  CoreSet cores;              ///< Cores on which the rank may run.
  std::uint32_t quota = 0;    ///< CPU time that the rank's cgroups grant, in cores; 0: no limit.
  bool has_rdma = false;      ///< True if the rank can use RDMA: find_rdma() of rdma_ports.h.
  std::string why_no_rdma;    ///< Why the rank cannot use RDMA. Empty if it can.
  bool has_aes = false;       ///< The rank's processor supports AES-256-GCM.
  std::string settings;       ///< Must be equal on all ranks: agreed_settings().

  friend bool operator==(const PeerFacts&, const PeerFacts&) = default;
};
/// The name of this host.
std::string host_name();
PeerFacts own_facts(const LoadedConfig& loaded, const Logger& logger);
/// The ports at these interfaces of this host.
std::vector<Port> ports_of(const std::vector<Interface>& interfaces);

/// The facts as bytes, to be sent to other ranks.
std::vector<std::byte> encode(const PeerFacts& facts);
/// Reads the facts that `rank` has sent. Fails with `mismatch` if encode() did not make `blob`.
Result<PeerFacts> decode(std::uint32_t rank, std::span<const std::byte> blob);

/// OK, or a `mismatch` that names the first setting in which the two ranks differ.
Status compare_settings(std::uint32_t rank_a,
                        const PeerFacts& a,
                        std::uint32_t rank_b,
                        const PeerFacts& b);

}  // namespace xylem::runtime
