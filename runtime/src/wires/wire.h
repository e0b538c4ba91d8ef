// SPDX-License-Identifier: Apache-2.0
//
// Wire: this rank's transport of one kind, and which pairs of ranks this kind of transport joins.
#pragma once

#include "bootstrap/control_plane.h"
#include "config.h"
#include "wires/hosts.h"
#include "wires/peer_facts.h"
#include "xylem/base/clock.h"
#include "xylem/base/log.h"
#include "xylem/base/status.h"
#include "xylem/execution/link.h"
#include "xylem/transport/connections.h"
#include "xylem/transport/transport.h"

#include <cstddef>
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

/// A kind of transport that a job may use.
struct WireKind {
  std::string name;   ///< "shm", "tcp", "ucx-tcp", "ucx-rdma".
  std::string joins;  ///< For error messages: which ranks it joins, such as "all ranks".
  /// Whether two ranks may use this kind. Must return the same on all ranks.
  bool (*may_join)(const PeerFacts& a, const PeerFacts& b) = nullptr;
  /// Makes the transport of this rank, for messages with `peers` other ranks.
  std::function<Result<std::unique_ptr<transport::Transport>>(std::uint32_t peers)> make;
  /// If set, two ranks use this kind only if their handshake at start succeeds
  /// (Transport::connect_state()).
  bool probes_at_start = false;
  /// Whether its transport has Connections. If so, rank 0 can request a connection before the
  /// transport is made.
  bool has_connections = false;
  /// The value of XYLEM_REQUIRE that it satisfies; none if it satisfies no value.
  Requirement satisfies = Requirement::none;
};

/// Is informed about connections that end by themselves.
class WiresListener {
 public:
  /// The connection to a rank has ended, although this rank has not closed it. Called by the token
  /// holder.
  virtual void on_link_lost(std::uint32_t world_rank, const Status& why) = 0;

 protected:
  ~WiresListener() = default;
};

/// After open(), only the token holder may use a Wire. Exceptions are name(), transport(), made(),
/// may_join() and joins(), which read what open() has set: any thread may call these.
class Wire final : private transport::ConnectionOwner {
 public:
  /// The arguments passed by reference must outlive the wire.
  Wire(WireKind kind,
       const Hosts& hosts,
       ControlPlane& control,
       WiresListener& listener,
       const Logger& logger);
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;
  ~Wire() = default;

  /// Makes the transport if `peers` is not empty, and exchanges addresses with all ranks. If
  /// WireKind::probes_at_start is set, also connects to the peers. Collective. A rank that fails to
  /// make its transport publishes the reason instead of an address, so that no other rank waits for
  /// it.
  Status open(std::span<const std::uint32_t> peers, Deadline deadline);

  const std::string& name() const noexcept { return kind_.name; }
  const std::string& joins_what() const noexcept { return kind_.joins; }
  Requirement satisfies() const noexcept { return kind_.satisfies; }
  /// Null if open() was called without peers, or could not make the transport.
  transport::Transport* transport() const noexcept { return transport_.get(); }
  /// Why this rank could not make its transport. OK if it has one, or needs none.
  const Status& made() const noexcept { return made_; }
  /// Why two ranks do not reach each other, although may_join() is true for them. For a failure of
  /// this rank, the status is made().
  Status why_apart(std::uint32_t a, std::uint32_t b) const;
  /// The same as text that is equal on all ranks.
  std::string obstacle(std::uint32_t a, std::uint32_t b) const;
  bool may_join(std::uint32_t a, std::uint32_t b) const {
    return kind_.may_join(hosts_.peers()[a], hosts_.peers()[b]);
  }
  /// Whether two ranks reach each other over this kind of transport. The same on all ranks.
  bool joins(std::uint32_t a, std::uint32_t b) const {
    return has(a) && has(b) && may_join(a, b) && !unreached_.contains(std::minmax(a, b));
  }

  /// The link to a rank. Connects to the rank at first use.
  Result<Link> link(std::uint32_t rank);
  /// The link to a rank; its transport is null before the first use.
  const Link& existing(std::uint32_t rank) const noexcept { return links_[rank]; }
  /// Adopts a connection for the endpoint to a rank. If the transport has no Connections, the
  /// connection is closed.
  Status adopt(std::uint32_t rank, transport::Connection connection);
  /// Closes the endpoint to a rank if it never had a connection.
  void close_unconnected(std::uint32_t rank) noexcept;
  void close(std::uint32_t rank) noexcept;
  /// Ends connections whose remote host does not answer.
  void end_silent(Clock::time_point now) noexcept;

 private:
  void on_connection_needed(transport::EndpointId endpoint) override;
  void on_lost(transport::EndpointId endpoint, const Status& why) override;
  std::uint32_t rank_behind(transport::EndpointId endpoint) const noexcept;

  /// Whether a rank has a transport of this kind.
  bool has(std::uint32_t rank) const noexcept { return published_[rank].has_transport; }
  Status publish(Deadline deadline);
  Status probe(std::span<const std::uint32_t> peers, Deadline deadline);
  bool reaches(std::uint32_t peer, Deadline limit);
  Status note_unreached(std::uint32_t rank, std::span<const std::byte> unreached);

  /// What a rank has published.
  struct Published {
    bool has_transport = false;
    std::vector<std::byte> address;  ///< Of its transport.
    std::string failure;             ///< Why it could not make a transport; empty otherwise.
  };

  const WireKind kind_;
  const Hosts& hosts_;
  ControlPlane& control_;
  WiresListener& listener_;
  const Logger& logger_;
  Status made_;
  std::unique_ptr<transport::Transport> transport_;
  transport::Connections* connections_ = nullptr;  ///< Of the transport; null if it has none.
  std::vector<Published> published_;               ///< By rank.
  /// Pairs of ranks whose handshake at start has failed; the smaller rank comes first.
  std::set<std::pair<std::uint32_t, std::uint32_t>> unreached_;
  std::vector<Link> links_;  ///< links_[r] is the link to rank r; null until first use.
};

}  // namespace xylem::runtime
