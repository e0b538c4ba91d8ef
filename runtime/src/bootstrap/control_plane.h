// SPDX-License-Identifier: Apache-2.0
//
// ControlPlane: the job's out-of-band network. Each rank keeps O(log n) TCP connections (ring
// neighbours and powers of two), so the other ranks stay connected when one dies. At start, the
// control plane gathers the facts that ranks must know about each other. Later it floods deaths,
// stall reports, verdicts and aborts. It carries no payload, but it makes each connection for
// payload when it is first needed (payload_connections.h).
//
//   joining ──► serving ──► leaving ──► closed
//
// A peer first sends a preamble with protocol and library version, and then proves that it knows
// the job's secret (handshake.h). Until the proof is verified, nothing else is read from the peer.
// Every frame has a bounded length and is encrypted.
#pragma once

#include "bootstrap/interface.h"
#include "bootstrap/launcher.h"
#include "bootstrap/payload_connection.h"
#include "xylem/base/clock.h"
#include "xylem/base/log.h"
#include "xylem/base/status.h"
#include "xylem/runtime/store.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace xylem::runtime {

/// What the control plane reports about the job. Only ControlPlane::serve() calls these functions,
/// so they run on its caller's thread.
class ControlListener {
 public:
  virtual ~ControlListener() = default;
  /// A rank ended without leaving in good order. Called once for each such rank. `rank` is this
  /// rank itself if a neighbour has lost the connection to it (a broken network): then the job
  /// continues without this rank. `how` is for people: "connection reset", "its process ended".
  virtual void on_peer_lost(std::uint32_t rank, std::string_view how) = 0;
  /// A rank left in good order. Called once for each such rank.
  virtual void on_peer_left(std::uint32_t rank) = 0;
  /// A message that rank `origin` has flooded, or has sent to this rank. Called exactly once for
  /// each flooded message without a topic, on every rank except `origin`. Of the messages of one
  /// topic, every rank receives at least one, unless it has flooded one itself.
  virtual void on_message(std::uint32_t origin, std::span<const std::byte> message) = 0;
  /// A connection for payload has been made. This rank or the other rank has requested it by
  /// request_connection(). Called at most once for each other rank.
  virtual void on_connected(PayloadConnection connection) = 0;
  /// A connection for payload to `rank` could not be made at this end, for the reason `why`. This
  /// rank or `rank` has requested it by request_connection().
  virtual void on_connection_failed(std::uint32_t rank, const Status& why) = 0;
};

class ControlPlane {
 public:
  static constexpr std::size_t kMaxMessage = 64 * 1024;
  static constexpr std::uint64_t kNoTopic = 0;
  static constexpr std::chrono::milliseconds kSameTopic{100};

  /// Finds the other ranks through the store and connects to this rank's neighbours. Fails with
  /// timed_out, naming the ranks that did not join, or with mismatch, naming both versions. Defined
  /// in control_join.cc, since the implementation depends on this header.
  static Result<std::unique_ptr<ControlPlane>> join(const Placement& placement,
                                                    Store& store,
                                                    const Config& config,
                                                    const Logger& logger,
                                                    Deadline deadline);
  virtual ~ControlPlane() = default;

  virtual std::uint32_t rank() const noexcept = 0;
  virtual std::uint32_t size() const noexcept = 0;
  /// The network interfaces of this host that may carry payload (InterfaceChoice). First the one
  /// that the control plane uses.
  virtual std::vector<Interface> interfaces() const = 0;
  /// Listens for payload at this address of the host, in place of that of the control plane. Call
  /// it before the first request_connection().
  virtual void listen_for_payload_at(const SocketAddress& address) = 0;

  /// The bytes of every rank, in the order of the ranks, gathered in ceil(log2 n) rounds.
  /// Collective; blocks. Call it only before the first serve(). Values may be large (MiB).
  virtual Result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> mine,
                                                                 Deadline deadline) = 0;

  /// Readable when serve() has something to do.
  virtual int fd() const noexcept = 0;
  /// Handles frames and requests that have arrived, and time limits that have passed; never blocks.
  /// Only one thread may call it. Returns the time at which it must be called again at the latest.
  virtual Clock::time_point serve(ControlListener& listener) = 0;

  /// Sends a message of at most kMaxMessage bytes to all ranks. Any thread may call it. The message
  /// is sent in the next serve(): fd() becomes readable. If many ranks are about to send messages
  /// that serve the same purpose, they name the same topic. A rank then passes on only one of those
  /// that it receives or sends within kSameTopic, so each rank sends as many frames as for one
  /// message.
  virtual void flood(std::span<const std::byte> message, std::uint64_t topic) = 0;
  void flood(std::span<const std::byte> message) { flood(message, kNoTopic); }
  /// Like flood(), but only `rank` receives the message. As long as no rank has ended, the message
  /// goes over O(log n) ranks, and is lost if one of them ends meanwhile. Later it is flooded,
  /// since a rank between this one and `rank` may be missing.
  virtual void send(std::uint32_t rank, std::span<const std::byte> message) = 0;
  /// Requests a connection for payload to another rank. Once it is made, serve() calls
  /// on_connected() on both ranks. Any thread may call it. A repeated request has no effect.
  virtual void request_connection(std::uint32_t rank) = 0;
  /// Announces to all ranks that this rank leaves, and sends all queued frames, within the
  /// deadline. Call it after the last serve().
  virtual void leave(Deadline deadline) = 0;
};

}  // namespace xylem::runtime
