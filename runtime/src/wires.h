// SPDX-License-Identifier: Apache-2.0
//
// Wires: the transports of a job and which of them reaches whom. Peers proven to be on this host go
// over the host wire, which has no network in it; all others over the network wire, which has no
// shared memory in it.
#pragma once

#include "bootstrap/control_plane.h"
#include "config.h"
#include "engine.h"
#include "peer_facts.h"
#include "xylem/base/log.h"
#include "xylem/base/status.h"
#include "xylem/runtime/runtime.h"
#include "xylem/transport/transport.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace xylem::runtime {

struct Wire {
  std::string name;  ///< "shm", "ucx-tcp", "ucx-network", "loopback".
  std::unique_ptr<transport::Transport> transport;
};

enum class Reach : std::uint8_t { host, network };

/// Makes the wire of one reach, to `peers` others.
using WireMaker = std::function<Result<Wire>(Reach reach, std::uint32_t peers)>;
/// As the configuration says: shared memory, and UCX; `interface`: the one that routes to the
/// rendezvous.
WireMaker configured_wires(const Config& config, std::string interface, const Logger& logger);

struct WireOptions {
  bool use_host = true;       ///< Else all go over the network wire.
  bool require_host = false;  ///< It is an error if any do.
};
WireOptions wire_options(const Config& config);

class Wires {
 public:
  /// Meets all ranks over the control plane: compares settings, makes the wires needed, exchanges
  /// their addresses. Two that say to be on one host use the host wire if each has met the other
  /// there; both decide alike. Collective.
  static Result<Wires> connect(ControlPlane& control,
                               const PeerFacts& mine,
                               const WireMaker& make,
                               const WireOptions& options,
                               const Logger& logger,
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
  /// The largest message that all pairs of these ranks can read where it arrives, so the largest
  /// slice that can be fused; 0 if a pair shares no memory. Alike on all of them.
  std::uint64_t view_bytes(std::span<const std::uint32_t> world_ranks) const noexcept;
  /// As Transport::pull_from(), of the host wire.
  void pull_from(std::uint64_t bytes) noexcept;
  /// How many ranks are on this host, and how many cores they have together.
  std::uint32_t local_ranks() const noexcept;
  std::uint32_t local_cores() const;
  /// Cores that the ranks of each host have together, by host_indices().
  std::vector<std::uint32_t> host_cores() const;
  /// Index of each rank's host, in order of first appearance.
  std::vector<std::uint32_t> host_indices() const;
  const std::vector<Wire>& all() const noexcept { return wires_; }
  PathInfo path(std::uint32_t world_rank) const;

 private:
  Wires() : wires_(2) {}

  Status exchange_facts(ControlPlane& control, const PeerFacts& mine, Deadline deadline);
  Status open_host(ControlPlane& control,
                   const WireMaker& make,
                   const WireOptions& options,
                   const Logger& logger,
                   Deadline deadline);
  Status all_share(const Status& made) const;
  Result<std::vector<std::byte>> meet_host(Deadline deadline);
  Status note_meetings(const std::vector<std::vector<std::byte>>& all_met);
  Status open_network(ControlPlane& control, const WireMaker& make, Deadline deadline);
  Status exchange_addresses(ControlPlane& control, Reach reach, Deadline deadline);
  std::uint32_t cores_of(std::uint64_t kernel) const;
  /// Of this host, with this one.
  std::vector<std::uint32_t> ranks_beside() const;
  std::size_t wire_of(std::uint32_t world_rank) const noexcept {
    return static_cast<std::size_t>(reach_[world_rank]);
  }

  std::uint32_t rank_ = 0;
  std::vector<PeerFacts> peers_;
  std::vector<Reach> reach_;                                 ///< By rank.
  bool uses_network_ = false;                                ///< Any two ranks of the job do.
  std::set<std::pair<std::uint32_t, std::uint32_t>> unmet_;  ///< Of one host, the smaller first.
  std::vector<Wire> wires_;                                  ///< By Reach; a transport may be null.
  std::vector<std::vector<std::byte>> addresses_[2];         ///< By wire, by rank.
  std::vector<Link> links_;                                  ///< By rank; null until first use.
};

}  // namespace xylem::runtime
