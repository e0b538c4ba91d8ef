// SPDX-License-Identifier: Apache-2.0
//
// Channels: all channels from and to the peers of a transport, and how the two ends of a channel
// connect.
//
//   sender: connect ── hello with the channel's number ──────────────────► receiver: Source made
//   sender: Outgoing is open ◄── accept with the number of its credits ─── receiver
//
// If the peer's socket has no room for a hello or an accept, poll_socket() sends the message again.
#pragma once

#include "matcher.h"
#include "outcome.h"
#include "shm/hold.h"
#include "shm/incoming.h"
#include "shm/outgoing.h"
#include "shm/peers.h"
#include "shm/segment.h"
#include "shm/slot_pool.h"
#include "xylem/transport/shm.h"
#include "xylem/transport/transport.h"

#include <cstdint>
#include <deque>
#include <vector>

namespace xylem::transport::shm {

/// The sending end of a channel. The channel has the same number as the endpoint.
struct Endpoint {
  Nonce nonce{};
  Outgoing outgoing;
  bool hello_sent = false;
  Peer* peer = nullptr;      ///< Null until the peer has accepted the channel.
  Incoming* back = nullptr;  ///< The channel from this peer; set by find_incoming().

  bool is_waiting() const noexcept { return peer == nullptr && outgoing.is_open(); }
  /// The peer, if it has accepted the channel and the endpoint is open.
  Peer* reachable_peer() const noexcept { return outgoing.is_open() ? peer : nullptr; }
};

/// The receiving end of a channel. Its index in `sources_` is the number of its Credit.
struct Source {
  Peer* peer = nullptr;
  std::uint32_t their_channel = 0;
  bool has_accepted = false;  ///< True if an accept was sent, or the sender has ended.
  Incoming incoming;
  std::vector<Request> unsent{};  ///< Requests for which the ring had no room.
};

class Channels {
 public:
  /// `own` is this transport's segment, and `slots` manages its slots. `matcher` matches messages
  /// with receives. Completions are appended to `outcomes`.
  Channels(const Segment& own,
           SlotPool& slots,
           Peers& peers,
           Matcher& matcher,
           Outcomes& outcomes,
           const ShmOptions& options) noexcept
      : own_(&own),
        slots_(&slots),
        peers_(&peers),
        matcher_(&matcher),
        outcomes_(&outcomes),
        writes_(options.writes),
        devices_(options.devices) {}

  std::size_t size() const noexcept { return endpoints_.size(); }
  Endpoint& endpoint(EndpointId id) noexcept { return endpoints_[id]; }
  const Endpoint& endpoint(EndpointId id) const noexcept { return endpoints_[id]; }
  Source& source(std::uint32_t channel) noexcept { return sources_[channel]; }
  /// The channel from the peer of an endpoint; null if the peer has not connected yet.
  Incoming* incoming_from(EndpointId id) noexcept {
    Endpoint& endpoint = endpoints_[id];
    return endpoint.back != nullptr ? endpoint.back : find_incoming(endpoint);
  }

  EndpointId connect(const Nonce& to);
  ConnectState connect_state(EndpointId id) const noexcept;
  void close(EndpointId id);
  /// True if no more messages will be read from the peer: it has ended, or all endpoints to it are
  /// closed.
  bool is_left(const Peer& peer) const noexcept;

  /// Whether poll_socket() should be called soon.
  bool must_poll_socket() const noexcept { return is_connecting_ || peers_->must_poll_socket(); }
  /// Processes the messages that peers have sent to the socket, and reclaims memory from peers that
  /// have ended.
  void poll_socket();
  /// Receives and sends as much as possible. Returns the amount of work done.
  unsigned progress();
  /// Call this for a receive that has not matched a message yet. Any channel may deliver its
  /// message, so the message is requested on each channel that is on hold.
  void on_posted(const Receive& receive) {
    if (held_ > 0) request(receive);
  }
  /// Cancels a send, or a receive that has matched a stream. False if the operation is neither.
  bool cancel(const Operation& operation);
  /// Reclaims the entries and slots that receivers have consumed. True if any were reclaimed.
  bool retire() noexcept;

  /// Reports to all senders which entries have been consumed.
  void report_consumed() noexcept;
  /// Call this between Sleeper::prepare() and finish(). True if there is anything to do, so that
  /// the transport must not sleep.
  bool is_busy();
  /// Whether a device is copying messages to the host.
  bool is_copying() const noexcept;
  /// Waits until no device writes into the segment. False if a device still writes after 5 seconds.
  bool finish_copies();

 private:
  Incoming* find_incoming(Endpoint& endpoint) noexcept;
  void send_hello(EndpointId id);
  void accept(std::uint32_t channel);
  void on_hello(const PeerMessage& hello, Peer& peer);
  void on_accept(const PeerMessage& accept, Peer& peer);
  void reclaim_from_ended();
  Endpoint* open_endpoint_to(const Nonce& nonce) noexcept;
  void request(const Receive& receive);
  void send_request(Source& source, const Request& request);
  unsigned update_holds();
  void pass_on_requests();

  const Segment* own_;
  SlotPool* slots_;
  Peers* peers_;
  Matcher* matcher_;
  Outcomes* outcomes_;
  ShmWrites writes_;
  DeviceMemory* devices_;
  std::deque<Endpoint> endpoints_;
  std::deque<Source> sources_;
  /// True if, at the last poll_socket(), a hello had not been answered or an accept had not been
  /// sent.
  bool is_connecting_ = false;
  std::vector<PeerRequest> requests_;  ///< Requests that have arrived from peers.
  std::uint32_t held_ = 0;             ///< Number of incoming channels on hold.
};

}  // namespace xylem::transport::shm
