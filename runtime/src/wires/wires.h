// SPDX-License-Identifier: Apache-2.0
//
// Wires: the transports of a job, and which of them reaches which rank. Peers that are proven to be
// on this host are reached over the host wire, which uses no network; all other peers are reached
// over the network wire, which uses no shared memory. Between hosts that is RDMA by UCX if all
// ranks have it, otherwise Xylem's own TCP, whose connections the control plane makes, each when it
// is first needed.
#pragma once

#include "bootstrap/control_plane.h"
#include "config.h"
#include "progress/token.h"
#include "progress/work_source.h"
#include "wires/hosts.h"
#include "wires/peer_facts.h"
#include "xylem/base/log.h"
#include "xylem/base/status.h"
#include "xylem/execution/link.h"
#include "xylem/runtime/path_info.h"
#include "xylem/transport/device_memory.h"
#include "xylem/transport/host_peers.h"
#include "xylem/transport/tcp.h"
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

using execution::Link;

struct Wire {
  std::string name;  ///< "shm", "tcp", "ucx-tcp", "ucx-rdma", "loopback".
  std::unique_ptr<transport::Transport> transport;
};

enum class Reach : std::uint8_t { host, network };

/// What a wire is needed for.
struct WireRequest {
  Reach reach = Reach::host;
  std::uint32_t peers = 0;   ///< How many other ranks the wire must reach.
  std::uint32_t ranks = 0;   ///< Number of ranks of the job.
  bool has_rdma = false;     ///< True if all ranks have RDMA.
  bool is_one_host = false;  ///< True if all ranks are on this host.
  /// The devices of this rank, which outlive the wire; null if there are none.
  transport::DeviceMemory* devices = nullptr;
};
using WireMaker = std::function<Result<Wire>(const WireRequest& request)>;
/// Makes wires as the configuration says: shared memory, TCP, or UCX. `interface` is the network
/// interface by which the rendezvous is reached.
WireMaker configured_wires(const Config& config, std::string interface, const Logger& logger);

struct WireOptions {
  bool use_host = true;       ///< If not set, all peers are reached over the network wire.
  bool require_host = false;  ///< If set, it is an error if any peer needs the network wire.
  /// How TCP protects payload.
  transport::Protection protection = transport::Protection::auth;
  transport::DeviceMemory* devices = nullptr;  ///< See WireRequest.
  /// If set, rank 0 asks for the connection over which hosts are measured as soon as it knows the
  /// hosts, so that it is made while the ranks exchange addresses.
  bool meets_early = false;
};
WireOptions wire_options(const Config& config, transport::DeviceMemory* devices);

/// The wires tell their listener of connections that end by themselves.
class WiresListener {
 public:
  /// The connection to a rank has ended although nobody closed it here. Called by the token holder.
  virtual void on_link_lost(std::uint32_t world_rank, const Status& why) = 0;

 protected:
  ~WiresListener() = default;
};

class Wires final : public WorkSource, public transport::HostPeers, private transport::TcpOwner {
 public:
  /// Meets all ranks over the control plane: compares settings, makes the wires needed, exchanges
  /// their addresses. Two ranks that claim to be on one host use the host wire if each has met the
  /// other there; both decide alike. Collective. The control plane and the listener outlive the
  /// result.
  static Result<std::unique_ptr<Wires>> connect(ControlPlane& control,
                                                const PeerFacts& mine,
                                                const WireMaker& make,
                                                const WireOptions& options,
                                                WiresListener& listener,
                                                const Logger& logger,
                                                Deadline deadline);
  Wires(const Wires&) = delete;
  Wires& operator=(const Wires&) = delete;
  ~Wires() override = default;

  /// The link to a rank. Connects to the rank at first use.
  Result<Link> link(Token token, std::uint32_t world_rank);
  /// Adopts a connection for the endpoint to a rank, for which one of the two ranks asked.
  Status adopt(Token token, Encounter encounter);
  /// Call this if there will be no connection to a rank: ends what waits for one.
  void give_up_meeting(Token token, std::uint32_t world_rank) noexcept;
  /// Cuts the endpoint to a rank that is lost.
  void close(Token token, std::uint32_t world_rank) noexcept;
  /// Whether all that was sent to a rank has left this process.
  bool flush(Token token, std::uint32_t world_rank) noexcept;
  /// Transport::discard() of all wires.
  void discard(Token token, transport::Tag tag, transport::Tag mask) noexcept;
  /// Views::pull_from() of the host wire, if its transport has views.
  void pull_from(Token token, std::uint64_t bytes) noexcept;

  unsigned turn(Token token) override;
  bool arm(Token token, std::vector<pollfd>& descriptors) override;
  bool needs_polling(Token token) const noexcept override;
  /// Ends connections whose remote host does not answer.
  void tick(Token token, Clock::time_point now) override;

  const Hosts& hosts() const noexcept { return hosts_; }
  /// What the wire to a rank is able to do. Nothing for this rank itself.
  transport::Capabilities capabilities(std::uint32_t world_rank) const noexcept;
  /// The largest message that every pair of these ranks can read where it arrives. So it is also
  /// the largest slice that can be fused. 0 if any pair shares no memory. All these ranks get the
  /// same number.
  std::uint64_t view_bytes(std::span<const std::uint32_t> world_ranks) const noexcept;
  // The ranks of this host, by all wires:
  void hold_wakes(bool held) noexcept override;
  void show_computing(bool computes) noexcept override;
  bool do_peers_compute() const noexcept override;
  PathInfo path(std::uint32_t world_rank) const;

 private:
  Wires(ControlPlane& control, const WireOptions& options, WiresListener& listener, Logger logger)
      : control_(control),
        options_(options),
        listener_(listener),
        logger_(std::move(logger)),
        rank_(control.rank()),
        reach_(control.size(), Reach::network),
        uses_network_(control.size() > 1),
        wires_(2),
        links_(control.size()) {}

  void on_wanted(transport::EndpointId endpoint) override;
  void on_lost(transport::EndpointId endpoint, const Status& why) override;
  std::uint32_t rank_behind(transport::EndpointId endpoint) const noexcept;

  Status exchange_facts(const PeerFacts& mine, Deadline deadline);
  void meet_early() const;
  Status open_host(const WireMaker& make, Deadline deadline);
  Status all_share(const Status& made) const;
  Result<std::vector<std::byte>> meet_host(Deadline deadline);
  Status note_meetings(const std::vector<std::vector<std::byte>>& all_met);
  Status open_network(const WireMaker& make, Deadline deadline);
  WireRequest request(Reach reach, std::uint32_t peers) const;
  Status exchange_addresses(Reach reach, Deadline deadline);
  std::size_t wire_of(std::uint32_t world_rank) const noexcept {
    return static_cast<std::size_t>(reach_[world_rank]);
  }

  ControlPlane& control_;
  const WireOptions options_;
  WiresListener& listener_;
  const Logger logger_;
  std::uint32_t rank_ = 0;
  Hosts hosts_;
  std::vector<Reach> reach_;   ///< reach_[r]: which wire reaches rank r.
  bool uses_network_ = false;  ///< True if at least two ranks of the job use the network wire.
  /// Pairs of ranks on one host that have not met in shared memory; the smaller rank first.
  std::set<std::pair<std::uint32_t, std::uint32_t>> unmet_;
  std::vector<Wire> wires_;  ///< wires_[r] is the wire for the Reach r; its transport may be null.
  Clock::time_point next_look_{};           ///< When to look for silent connections next.
  transport::TcpTransport* tcp_ = nullptr;  ///< The network wire, if that is TCP.
  /// addresses_[w][r] is the address of rank r on wire w.
  std::vector<std::vector<std::byte>> addresses_[2];
  std::vector<Link> links_;  ///< links_[r] is the link to rank r; null until first use.
};

}  // namespace xylem::runtime
