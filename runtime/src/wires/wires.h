// SPDX-License-Identifier: Apache-2.0
//
// Wires: the transports of a job, and which of them reaches which rank. Each pair of ranks uses the
// first kind of transport that may join them and that works at both (transports.h): shared memory
// within a host, where the two have met; between hosts RDMA by UCX if all ranks have it, otherwise
// Xylem's own TCP, whose connections the control plane makes, each when it is first needed.
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
  /// How connections protect payload.
  transport::Protection protection = transport::Protection::auth;
  transport::DeviceMemory* devices = nullptr;  ///< See WireKinds.
  /// If set, rank 0 asks for the connection over which hosts are measured as soon as it knows the
  /// hosts, so that it is made while the ranks exchange addresses.
  bool meets_early = false;
};
WireOptions wire_options(const Config& config, transport::DeviceMemory* devices);

class Wires final : public WorkSource, public transport::HostPeers {
 public:
  /// Meets all ranks over the control plane: compares settings, and opens the kinds of transport in
  /// their order, each at the ranks that need it. Both ends of a pair decide alike which one they
  /// use. Fails at both if they have none. Collective. The control plane and the listener
  /// outlive the result.
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
  /// Adopts a connection for the endpoint to a rank, for which one of the two ranks asked.
  Status adopt(Token token, Encounter encounter);
  /// Call this if there will be no connection to a rank: ends what waits for one.
  void give_up_meeting(Token token, std::uint32_t world_rank) noexcept;
  /// Cuts the endpoint to a rank that is lost.
  void close(Token token, std::uint32_t world_rank) noexcept;
  /// Whether all that was sent to a rank has left this process.
  bool flush(Token token, std::uint32_t world_rank) noexcept;
  /// Transport::discard() of all transports.
  void discard(Token token, transport::Tag tag, transport::Tag mask) noexcept;
  /// Views::pull_from() of the transports that have views.
  void pull_from(Token token, std::uint64_t bytes) noexcept;

  unsigned turn(Token token) override;
  bool arm(Token token, std::vector<pollfd>& descriptors) override;
  bool needs_polling(Token token) const noexcept override;
  /// Ends connections whose remote host does not answer.
  void tick(Token token, Clock::time_point now) override;

  const Hosts& hosts() const noexcept { return hosts_; }
  /// What the wire to a rank is able to do. Nothing for this rank itself.
  transport::Capabilities capabilities(std::uint32_t world_rank) const noexcept;
  /// The largest message that every pair of these ranks, of which this rank is one, can read where
  /// it arrives. So it is also the largest slice that can be fused. 0 if any pair shares no memory.
  /// All these ranks get the same number.
  std::uint64_t view_bytes(std::span<const std::uint32_t> world_ranks) const;
  // The ranks of this host, by all transports:
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
        wire_to_(control.size()) {}

  Status exchange_facts(const PeerFacts& mine, Deadline deadline);
  void meet_early(std::span<const WireKind> kinds) const;
  Status open(std::span<const WireKind> kinds, Deadline deadline);
  void warn_of_next(const Wire& wire,
                    std::span<const std::uint32_t> peers,
                    std::span<const WireKind> later) const;
  Status why_apart(std::uint32_t peer) const;
  const Wire* wire_between(std::uint32_t a, std::uint32_t b) const;

  ControlPlane& control_;
  const WireOptions options_;
  WiresListener& listener_;
  const Logger logger_;
  std::uint32_t rank_ = 0;
  Hosts hosts_;
  std::vector<std::unique_ptr<Wire>> wires_;       ///< In the order in which pairs prefer them.
  std::vector<transport::Transport*> transports_;  ///< Those of the wires that have one.
  std::vector<Wire*> wire_to_;     ///< wire_to_[r] reaches rank r; null for this rank.
  Clock::time_point next_look_{};  ///< When to look for silent connections next.
};

}  // namespace xylem::runtime
