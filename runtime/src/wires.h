// SPDX-License-Identifier: Apache-2.0
//
// Wires: the transports of a job and which of them reaches whom. Peers proven to be on this host go
// over the host wire, which has no network in it; all others over the network wire, which has no
// shared memory in it.
#pragma once

#include "bootstrap/control_plane.h"
#include "config.h"
#include "cores.h"
#include "engine.h"
#include "xylem/base/log.h"
#include "xylem/base/status.h"
#include "xylem/runtime/runtime.h"
#include "xylem/transport/transport.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace xylem::runtime {

/// What each rank tells all others at start.
struct PeerFacts {
  std::string host;  ///< Host name, for people.
  std::uint64_t kernel =
      0;  ///< Hash of boot id, network and IPC namespace: equal only where shared memory can meet.
  CoreSet cores;         ///< On which it may run.
  std::string settings;  ///< agreed_settings().
};
PeerFacts own_facts(const LoadedConfig& loaded);

struct Wire {
  std::string name;  ///< "ucx-shm", "ucx-tcp", "ucx-network", "loopback".
  std::unique_ptr<transport::Transport> transport;
};

enum class Reach : std::uint8_t { host, network };

/// Makes the wire of one reach.
using WireMaker = std::function<Result<Wire>(Reach reach)>;
/// UCX, as the configuration says; `interface`: the one that routes to the rendezvous.
WireMaker ucx_wires(const Config& config, std::string interface, const Logger& logger);

class Wires {
 public:
  /// Meets all ranks over the control plane: compares settings, makes the wires needed, exchanges
  /// their addresses. Collective.
  static Result<Wires> connect(ControlPlane& control,
                               const PeerFacts& mine,
                               const WireMaker& make,
                               bool force_network,
                               Deadline deadline);

  /// Connects to a rank at first use. Token holder.
  Result<Link> link(std::uint32_t world_rank);
  /// Cuts the endpoint to a rank that is lost. Token holder.
  void close(std::uint32_t world_rank) noexcept;

  /// Whether all that was sent to a rank has left this process. Token holder.
  bool flush(std::uint32_t world_rank) noexcept;

  const std::vector<PeerFacts>& peers() const noexcept { return peers_; }
  bool same_host(std::uint32_t a, std::uint32_t b) const noexcept {
    return peers_[a].kernel == peers_[b].kernel;
  }
  /// How many cores the ranks of this host have together.
  std::uint32_t local_cores() const;
  /// Index of each rank's host, in order of first appearance.
  std::vector<std::uint32_t> host_indices() const;
  const std::vector<Wire>& all() const noexcept { return wires_; }
  PathInfo path(std::uint32_t world_rank) const;

 private:
  Wires() = default;
  std::size_t wire_of(std::uint32_t world_rank) const noexcept;

  std::uint32_t rank_ = 0;
  bool force_network_ = false;
  std::vector<PeerFacts> peers_;
  std::vector<Wire> wires_;                           ///< [host][network]; a transport may be null.
  std::vector<std::vector<std::byte>> addresses_[2];  ///< By wire, by rank.
  std::vector<Link> links_;                           ///< By rank; null until first use.
};

}  // namespace xylem::runtime
