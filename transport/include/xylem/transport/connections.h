// SPDX-License-Identifier: Apache-2.0
//
// Connections: the part of a transport whose endpoints need connections that its owner makes. The
// transport opens no port and makes no connection. When an endpoint has something to send and no
// connection, it requests one from its owner (ConnectionOwner::on_connection_needed()), and
// continues after adopt(). Both ends may request a connection; one connection carries both
// directions.
#pragma once

#include "xylem/base/clock.h"
#include "xylem/base/status.h"
#include "xylem/base/unique_fd.h"
#include "xylem/transport/seal.h"
#include "xylem/transport/transport.h"

#include <cstdint>

namespace xylem::transport {

/// How payload is protected in transit. Frame heads are encrypted as well, except with `off`.
enum class Protection : std::uint8_t {
  off,      ///< Neither authenticated nor encrypted.
  auth,     ///< Sent in clear, but authenticated: a changed message does not complete with success.
  encrypt,  ///< Authenticated and encrypted.
};

/// A connection to an authenticated peer, and its keys. Both ends use the same protection and
/// cipher, and the outgoing key of one end is the incoming key of the other.
struct Connection {
  UniqueFd socket;
  Protection protection = Protection::auth;
  Cipher cipher = Cipher::chacha20_poly1305;
  SealKey outgoing{}, incoming{};
};

/// Makes the connections of a transport, and is informed when one is lost.
class ConnectionOwner {
 public:
  /// An endpoint has something to send and no connection. The owner is expected to make one and to
  /// pass it to adopt(). Called within send(), once for each endpoint. Must not call the transport.
  virtual void on_connection_needed(EndpointId endpoint) = 0;
  /// The connection of an endpoint has ended although the endpoint was not closed. The code of
  /// `why` is peer_lost if the peer ended the connection, exhausted if there was no memory for an
  /// incoming message, and link_lost otherwise. Called from the same places as Operation::done,
  /// before the operations of the connection end.
  virtual void on_lost(EndpointId endpoint, const Status& why) = 0;

 protected:
  ~ConnectionOwner() = default;
};

/// Belongs to its transport, and is called by the thread that may call the transport.
class Connections {
 public:
  /// Sets the owner. Call it before the first send. Null means no owner. The owner must outlive the
  /// transport.
  virtual void set_owner(ConnectionOwner* owner) noexcept = 0;
  /// Sets the connection of an endpoint. If the endpoint already had one, or is closed,
  /// `connection` is closed instead. Fails with `exhausted` if the socket cannot be watched.
  virtual Status adopt(EndpointId endpoint, Connection connection) = 0;
  /// Ends connections with link_lost if the peer's host has been silent for too long (Silence);
  /// on_lost() reports them. Call this a few times a second.
  virtual void end_silent(Clock::time_point now) noexcept = 0;
  /// Whether the endpoint has a connection or had one.
  virtual bool was_connected(EndpointId endpoint) const noexcept = 0;

 protected:
  ~Connections() = default;
};

}  // namespace xylem::transport
