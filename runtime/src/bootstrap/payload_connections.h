// SPDX-License-Identifier: Apache-2.0
//
// PayloadConnections: makes the connection for payload between two ranks when one of them first
// needs it.
//
//   rank a: ask(b) ── listens, invites b over the control plane ──►  rank b: calls a
//           ◄───────────────── handshake of both ─────────────────►
//           does not listen any more
//
// If two ranks invite each other, the invitation of the lower rank takes precedence. One port
// serves all invitations of a rank, and is open only while some invitation is not answered. An
// invitation that is not answered is sent again, less and less often. From the third time on it is
// flooded, since a rank that should forward it may have died. A rank that cannot listen or call
// because descriptors or ports have run out tries for some seconds, and then reports the failure.
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
  /// `key` is derived from the job's secret and used for nothing else. `poller` watches the
  /// connections; its events carry `tag`.
  PayloadConnections(const Member& self,
                     Key key,
                     SocketAddress local,
                     Poller& poller,
                     std::uint64_t tag,
                     const Logger& logger);

  /// Asks for a connection to a rank. Asking again changes nothing.
  void request(std::uint32_t rank);
  void on_invited(const Invitation& invitation);
  /// Handles an event that the poller has for this descriptor.
  void on_event(int fd);
  /// Call this when a rank is lost or has left: it is no longer waited for.
  void forget(std::uint32_t rank);

  /// Does what is due by now, and appends the invitations that are to be sent.
  void tick(Clock::time_point now, std::vector<Invitation>& invitations);
  /// When tick() is due.
  Clock::time_point due() const noexcept;
  std::vector<PayloadConnection> take_connections() { return std::exchange(connections_, {}); }
  /// Ranks to which no connection can be made here, and why.
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
  /// Counts one more failed attempt.
  void note_failure(std::uint32_t rank, const Status& why);
  void on_proven(Greeting greeting);

  const Member self_;
  const Key key_;
  const SocketAddress local_;
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
