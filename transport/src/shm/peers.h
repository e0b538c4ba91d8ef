// SPDX-License-Identifier: Apache-2.0
//
// Peers: the transports that have sent a message to this transport's socket, and their memory that
// this process maps.
#pragma once

#include "shm/allocations.h"
#include "shm/owner.h"
#include "shm/peer_memory.h"
#include "shm/peer_socket.h"
#include "shm/segment.h"
#include "xylem/base/log.h"
#include "xylem/base/unique_fd.h"

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace xylem::transport::shm {

/// Another transport. The peer's segment stays mapped here until this transport ends.
struct Peer {
  Nonce nonce{};
  Segment segment;
  UniqueFd wake;
  PeerMemory memory;
  mutable Wake wake_later{};
  std::vector<std::uint32_t> shared{};  ///< Ids of the allocations whose descriptors the peer has.

  Peer(const Nonce& its_nonce,
       Segment its_segment,
       UniqueFd its_wake,
       bool& must_poll_socket,
       const bool& holds_wakes) noexcept
      : nonce(its_nonce),
        segment(std::move(its_segment)),
        wake(std::move(its_wake)),
        memory(must_poll_socket),
        wake_later{.is_held = &holds_wakes} {}
  Owner owner() const noexcept { return {segment, wake.get(), &wake_later}; }
};

class Peers {
 public:
  using Sent = PeerSocket::Sent;

  /// `own` is the segment of this transport and `wake` the eventfd that wakes it.
  Peers(const Segment& own, PeerSocket socket, int wake, Logger logger) noexcept
      : own_(&own), socket_(std::move(socket)), wake_(wake), logger_(std::move(logger)) {}
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;
  ~Peers() = default;

  /// Sends a hello or an accept, with the descriptors of this transport.
  Sent connect(const Nonce& to, const PeerMessage& message) noexcept;
  /// Makes a peer forget all allocations of this process, so that their descriptors are passed
  /// again when they are needed. Call this when an endpoint to the peer opens and no other endpoint
  /// to it is open, since the peer may have dropped the allocations while none was open.
  void revoke_all(Peer& peer) noexcept;
  /// Passes the descriptor of an allocation to a peer, unless the peer has it already. False if the
  /// message could not be sent.
  bool share(Peer& peer, const Allocation& allocation);
  /// Informs all peers which of the allocations that they have are missing in `list`, because they
  /// were freed. False if the socket of a peer is full: call this again later.
  bool revoke_freed(const std::vector<Allocation>& list);

  struct Hello {
    PeerMessage message;  ///< A hello or an accept.
    Peer* peer = nullptr;
  };
  /// Processes messages up to the next hello or accept, and returns this hello or accept; nullopt
  /// if there is none.
  std::optional<Hello> receive();
  /// Whether receive() should be called soon: PeerMemory::request_socket_poll() has requested it,
  /// since the descriptor of announced memory has not arrived.
  bool must_poll_socket() const noexcept { return must_poll_socket_; }
  /// Logs that a message of a peer is ignored.
  void refuse(std::string_view why) const;

  std::list<Peer>& all() noexcept { return peers_; }
  const std::list<Peer>& all() const noexcept { return peers_; }
  /// See HostPeers::hold_wakes().
  void hold_wakes(bool held) noexcept;

 private:
  Sent send(const Nonce& to, PeerMessage message, std::span<const int> descriptors) noexcept;
  Sent revoke(const Peer& peer, std::uint32_t allocation) noexcept;
  Peer* peer_of(ReceivedMessage& received);

  const Segment* own_;
  PeerSocket socket_;
  int wake_;
  Logger logger_;
  std::list<Peer> peers_;
  bool must_poll_socket_ = false;
  bool holds_wakes_ = false;
};

}  // namespace xylem::transport::shm
