// SPDX-License-Identifier: Apache-2.0
//
// PayloadConnections: makes the connection for payload between two ranks when one of them first
// needs it.
//
//   rank a: ask(b) ── listens, invites b over the control plane ──►  rank b: connects to a
//           ◄───────────────── handshake of both ─────────────────►
//           stops listening
//
// If two ranks invite each other, the invitation of the lower rank takes precedence. One port
// serves all invitations of a rank, and is open only while some invitation is not answered. An
// invitation that is not answered is sent again, at growing intervals. The third and later
// invitations are flooded, since a rank that should forward them may have died. A rank that cannot
// listen or connect, because descriptors or ports have run out, retries for some seconds, and then
// reports the failure.
#pragma once

#include "bootstrap/control_frame.h"
#include "bootstrap/greeter.h"
#include "bootstrap/handshake.h"
#include "bootstrap/payload_connection.h"
#include "bootstrap/poller.h"
#include "bootstrap/refusals.h"
#include "bootstrap/secret.h"
#include "bootstrap/socket_address.h"
#include "xylem/base/clock.h"
#include "xylem/base/log.h"
#include "xylem/base/unique_fd.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace xylem::runtime {

/// Makes the connections for payload of one rank. Used by one thread only: the thread that serves
/// the control plane.
class PayloadConnections {
 public:
  /// `key` is derived from the job's secret, only for these connections. `poller` watches the
  /// connections; its events carry `tag`.
  PayloadConnections(const Member& self,
                     Key key,
                     SocketAddress local,
                     Poller& poller,
                     std::uint64_t tag,
                     const Logger& logger);

  /// Listens at another address of this host. Call it before the first request().
  void listen_at(const SocketAddress& local) { local_ = local; }
  /// Requests a connection to a rank. A repeated request has no effect.
  void request(std::uint32_t rank);
  void on_invited(const Invitation& invitation);
  /// Handles an event of the poller for the descriptor `fd`.
  void on_event(int fd);
  /// Stops all attempts to connect to a rank. Call this when the rank is lost or has left.
  void forget(std::uint32_t rank);

  /// Handles time limits that have passed. The caller must send the invitations that this function
  /// appends to `invitations`.
  void tick(Clock::time_point now, std::vector<Invitation>& invitations);
  /// When tick() must be called next.
  Clock::time_point due() const noexcept;
  std::vector<PayloadConnection> take_connections() { return std::exchange(connections_, {}); }
  /// A rank to which this end could not make a connection, and why.
  struct Failed {
    std::uint32_t rank;
    Status why;
  };
  std::vector<Failed> take_failed();

 private:
  struct Invited {
    Clock::time_point next;  ///< When the invitation is sent again.
    std::uint32_t times = 0;
  };

  Status listen();
  void stop_listening();
  void stop_listening_if_done();
  /// Counts a failed attempt to connect. After several, the failure is added to `failed_`.
  void note_failure(std::uint32_t rank, const Status& why);
  void on_proven(Greeting greeting);

  const Member self_;
  const Key key_;
  SocketAddress local_;
  Poller* const poller_;
  const std::uint64_t tag_;
  const Logger logger_;
  Refusals refusals_;
  Greeter greeter_;
  UniqueFd listener_;
  SocketAddress address_;                      ///< Where listener_ listens.
  std::map<std::uint32_t, Invited> invitees_;  ///< Ranks that this rank invites.
  std::vector<bool> connected_;  ///< connected_[r]: whether there is a connection to rank r.
  std::map<std::uint32_t, std::uint32_t> tries_;  ///< For each rank, how many attempts failed here.
  std::vector<Failed> failed_;
  std::uint32_t number_ = 0;
  std::vector<PayloadConnection> connections_;
};

}  // namespace xylem::runtime
