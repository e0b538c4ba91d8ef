// SPDX-License-Identifier: Apache-2.0
//
// Wires: the transports of this rank, and which transport reaches which rank. Each pair of ranks
// uses the first kind of transport that may join them and that works at both (transports.h). By
// default, this is shared memory within a host. Between hosts it is UCX over RDMA if both ranks
// have RDMA devices, otherwise Xylem's own TCP. The control plane makes the connections for TCP
// when they are first needed.
#pragma once

#include "bootstrap/control_plane.h"
#include "config.h"
#include "progress/token.h"
#include "progress/work_source.h"
#include "wires/hosts.h"
#include "wires/peer_facts.h"
#include "wires/transports.h"
#include "wires/wire.h"
#include "xylem/base/log.h"
#include "xylem/base/status.h"
#include "xylem/runtime/path_info.h"
#include "xylem/transport/device_memory.h"
#include "xylem/transport/host_peers.h"
#include "xylem/transport/transport.h"

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace xylem::runtime {

struct WireOptions {
  /// How the connections of the `tcp` transport protect payload.
  transport::Protection protection = transport::Protection::auth;
  transport::DeviceMemory* devices = nullptr;  ///< See WireKinds.
  /// If set, rank 0 requests one connection as soon as it knows the hosts: the one over which the
  /// network between hosts is measured (measure.h). The connection is then made while the ranks
  /// exchange addresses.
  bool connects_early = false;
  Requirement require = Requirement::none;  ///< Config::require
  /// Whether XYLEM_TRANSPORT lets ranks on different hosts use tcp, which can use several networks.
  bool may_use_tcp = false;
};
WireOptions wire_options(const Config& config, transport::DeviceMemory* devices);

class Wires final : public WorkSource, public transport::HostPeers {
 public:
  /// Compares settings with all ranks, and then opens the kinds of transport in their order. A rank
  /// makes the transport of a kind only if this kind may join it to a peer that no earlier kind
  /// reaches. Both ranks of a pair choose the same kind; if there is none, both fail. All ranks
  /// fail alike if a pair does not satisfy WireOptions::require. Collective. The control plane, the
  /// listener and the devices must outlive the result.
  static Result<std::unique_ptr<Wires>> connect(ControlPlane& control,
                                                const PeerFacts& mine,
                                                const WireKinds& kinds,
                                                const WireOptions& options,
                                                WiresListener& listener,
                                                const Logger& logger,
                                                Deadline deadline);
  Wires(const Wires&) = delete;
  Wires& operator=(const Wires&) = delete;
  ~Wires() override = default;

  /// The link to a rank. Connects to the rank at first use. Null for this rank itself.
  Result<Link> link(Token token, std::uint32_t world_rank);
  /// Adopts a connection to another rank. One of the two ranks has requested it.
  Status adopt(Token token, PayloadConnection connection);
  /// Call this if no connection to a rank can be made. Closes the endpoint to this rank, so that
  /// all messages to and from it end. Does nothing if the endpoint has had a connection.
  void close_unconnected(Token token, std::uint32_t world_rank) noexcept;
  /// Closes the endpoint to a lost rank.
  void close(Token token, std::uint32_t world_rank) noexcept;
  /// Whether everything that was sent to a rank has left this process (Transport::flush()).
  bool flush(Token token, std::uint32_t world_rank) noexcept;
  /// Calls Transport::discard() of all transports.
  void discard(Token token, transport::Tag tag, transport::Tag mask) noexcept;
  /// Calls Views::pull_from() of all transports that have views.
  void pull_from(Token token, std::uint64_t bytes) noexcept;

  unsigned turn(Token token) override;
  bool arm(Token token, std::vector<pollfd>& descriptors) override;
  bool needs_polling(Token token) const noexcept override;
  /// Ends connections whose remote host does not answer.
  void tick(Token token, Clock::time_point now) override;

  const Hosts& hosts() const noexcept { return hosts_; }
  /// The capabilities of the transport to a rank. None for this rank itself.
  transport::Capabilities capabilities(std::uint32_t world_rank) const noexcept;
  /// The largest message in bytes that any of these ranks can read in place, in shared memory, from
  /// any other of them. So it is also the largest slice that can be fused. 0 if any pair shares no
  /// memory. `world_ranks` includes this rank. The result is the same on all these ranks.
  std::uint64_t view_bytes(std::span<const std::uint32_t> world_ranks) const;
  // HostPeers, for the peers of all transports:
  void hold_wakes(bool held) noexcept override;
  void show_computing(bool computes) noexcept override;
  bool do_peers_compute() const noexcept override;
  PathInfo path(std::uint32_t world_rank) const;
  /// What has been sent to all other ranks.
  transport::Traffic traffic(Token token) const noexcept;

 private:
  Wires(ControlPlane& control, const WireOptions& options, WiresListener& listener, Logger logger)
      : control_(control),
        options_(options),
        listener_(listener),
        logger_(std::move(logger)),
        rank_(control.rank()),
        wire_to_(control.size()) {}

  Status exchange_facts(const PeerFacts& mine, Deadline deadline);
  void connect_early(std::span<const WireKind> kinds) const;
  Status open(std::span<const WireKind> kinds, Deadline deadline);
  void warn_of_next(const Wire& wire,
                    std::span<const std::uint32_t> peers,
                    std::span<const WireKind> later) const;
  Status check_requirement(Deadline deadline) const;
  Status why_apart(std::uint32_t peer) const;
  const Wire* wire_between(std::uint32_t a, std::uint32_t b) const;

  ControlPlane& control_;
  const WireOptions options_;
  WiresListener& listener_;
  const Logger logger_;
  std::uint32_t rank_ = 0;
  Hosts hosts_;
  std::vector<std::unique_ptr<Wire>> wires_;       ///< In order of preference.
  std::vector<transport::Transport*> transports_;  ///< The transports of the wires that have one.
  std::vector<Wire*> wire_to_;              ///< wire_to_[r] reaches rank r; null for this rank.
  Clock::time_point next_silence_check_{};  ///< When silent connections are next checked.
};

}  // namespace xylem::runtime
