// SPDX-License-Identifier: Apache-2.0
//
// Connections: the interface of a transport that does not connect its endpoints itself. Such a
// transport opens no port. When an endpoint has a message to send but no connection, the transport
// requests a connection from its ConnectionOwner (on_connection_needed()), and sends the message
// after adopt(). Both ends may request a connection; one connection carries both directions.
#pragma once

#include "xylem/base/clock.h"
#include "xylem/base/status.h"
#include "xylem/base/unique_fd.h"
#include "xylem/transport/seal.h"
#include "xylem/transport/transport.h"

#include <cstdint>

namespace xylem::transport {

/// How payload is protected in transit. With `auth` and `encrypt`, frame heads are encrypted and
/// authenticated.
enum class Protection : std::uint8_t {
  off,      ///< Neither authenticated nor encrypted.
  auth,     ///< Authenticated, not encrypted: a receive of a modified message fails.
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

/// Makes the connections of a transport, and is notified when a connection is lost.
class ConnectionOwner {
 public:
  /// Called within send(), once for each endpoint, when the endpoint has a message to send but no
  /// connection. The owner then makes a connection and passes it to adopt(). This function must not
  /// call the transport.
  virtual void on_connection_needed(EndpointId endpoint) = 0;
  /// Called when the connection of an open endpoint has ended. The code of `why` is peer_lost if
  /// the peer closed the connection, exhausted if there was no memory for an incoming message, and
  /// link_lost otherwise. Called within progress(), before the operations that end for this reason.
  virtual void on_lost(EndpointId endpoint, const Status& why) = 0;

 protected:
  ~ConnectionOwner() = default;
};

/// Belongs to its transport. Only the thread that may call the transport may call it.
class Connections {
 public:
  /// Sets the owner. Call it before the first send. Null means no owner. The owner must outlive the
  /// transport.
  virtual void set_owner(ConnectionOwner* owner) noexcept = 0;
  /// Sets the connection of an endpoint. If the endpoint has or had a connection, or is closed,
  /// closes `connection` instead. Fails with `exhausted` if the socket cannot be added to the epoll
  /// set.
  virtual Status adopt(EndpointId endpoint, Connection connection) = 0;
  /// Ends each connection whose peer's host has been silent for too long (Silence), with link_lost.
  /// progress() then calls on_lost() for these connections. Call end_silent() a few times a second.
  virtual void end_silent(Clock::time_point now) noexcept = 0;
  /// Whether the endpoint has or had a connection, or is closed.
  virtual bool was_connected(EndpointId endpoint) const noexcept = 0;

 protected:
  ~Connections() = default;
};

}  // namespace xylem::transport
