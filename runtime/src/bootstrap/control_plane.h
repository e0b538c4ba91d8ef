// SPDX-License-Identifier: Apache-2.0
//
// ControlPlane: the job's out-of-band network. Each rank keeps O(log n) TCP connections (ring
// neighbours and powers of two), so the death of one leaves the others connected. It gathers what
// ranks must know of each other at start, and later floods deaths, stall reports, verdicts and
// aborts. It carries no payload, but makes the connections that do (payload_connections.h), each
// when it is first needed.
//
//   joining ──► serving ──► leaving ──► closed
//
// A peer first sends magic, protocol and library version, and then proves that it knows the job's
// secret (keyed hash over a challenge). Nothing else that it sends is read before that. Every frame
// has a bounded length and is encrypted.
#pragma once

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

/// What the control plane reports about the job. The functions are called by serve(), on the thread
/// that serves.
class ControlListener {
 public:
  virtual ~ControlListener() = default;
  /// A rank ended without leaving in good order. Called once for each such rank. It is this rank
  /// itself if a neighbour lost the connection to it (a broken network), and the job continues
  /// without it. `how` is for people: "connection reset", "its process ended".
  virtual void on_peer_lost(std::uint32_t rank, std::string_view how) = 0;
  /// A rank left in good order. Called once for each such rank.
  virtual void on_peer_left(std::uint32_t rank) = 0;
  /// A message that rank `origin` flooded. It arrives exactly once, at every rank except its
  /// origin.
  virtual void on_message(std::uint32_t origin, std::span<const std::byte> message) = 0;
  /// There is now a connection to a rank, for which one of the two ranks has asked. Called once for
  /// each rank.
  virtual void on_connected(PayloadConnection connection) = 0;
  /// The connection to a rank, for which one of the two ranks has asked, cannot be made at this
  /// end. `why` is the reason.
  virtual void on_connection_failed(std::uint32_t rank, const Status& why) = 0;
};

class ControlPlane {
 public:
  static constexpr std::size_t kMaxMessage = 64 * 1024;

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
  /// The interface by which this host reaches the rendezvous ("eth0").
  virtual std::string interface() const = 0;

  /// The bytes of every rank, in the order of the ranks, gathered in ceil(log2 n) rounds.
  /// Collective; blocks. Call it only before the first serve(). Values may be large (MiB).
  virtual Result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> mine,
                                                                 Deadline deadline) = 0;

  /// Readable when serve() has something to do.
  virtual int fd() const noexcept = 0;
  /// Handles what has arrived and what is due; never blocks. Only one thread may call it. Returns
  /// the time at which it must be called again at the latest.
  virtual Clock::time_point serve(ControlListener& listener) = 0;

  /// Sends a message of at most kMaxMessage bytes to all ranks. Any thread may call it; the thread
  /// that serves sends the message (fd() becomes readable).
  virtual void flood(std::span<const std::byte> message) = 0;
  /// Asks for a connection to another rank. on_connected() follows at both ranks, unless one of
  /// them ends. Any thread may call it; asking again changes nothing.
  virtual void request_connection(std::uint32_t rank) = 0;
  /// Announces to all ranks that this rank leaves, and sends what is queued, within the deadline.
  /// Call it after the last serve().
  virtual void leave(Deadline deadline) = 0;
};

}  // namespace xylem::runtime
