// SPDX-License-Identifier: Apache-2.0
//
// tcp: tagged messages over sockets that somebody else has connected. It opens no port and makes no
// connection: where an endpoint has something to send and no connection, the transport asks its
// owner for one, and goes on when it gets it. Both ends may ask; one connection carries both ways.
//
// Every frame is sealed under keys of its own connection (seal.h), so what arrives is what a peer
// that holds the keys has sent, once and in order, or the connection ends.
#pragma once

#include "xylem/base/clock.h"
#include "xylem/base/log.h"
#include "xylem/base/status.h"
#include "xylem/base/unique_fd.h"
#include "xylem/transport/seal.h"
#include "xylem/transport/transport.h"

#include <cstdint>
#include <memory>
#include <string>

namespace xylem::transport {

/// What is done to payload on its way. Heads of frames are encrypted but for `off`.
enum class Protection : std::uint8_t {
  off,      ///< Nothing.
  auth,     ///< It travels as it is; a change of it is found before its message ends well.
  encrypt,  ///< It is encrypted, too.
};

/// A connection to a peer that has proven itself, and its keys. Both ends agree on the protection
/// and the cipher, and each one's outgoing key is the other's incoming.
struct TcpConnection {
  UniqueFd socket;
  Protection protection = Protection::auth;
  Cipher cipher = Cipher::chacha20_poly1305;
  SealKey outgoing{}, incoming{};
};

struct TcpOptions {
  /// What lanes() calls the device: the network interface.
  std::string device = "tcp";
  /// How many bytes a peer may send ahead of its receives; more wait with their sender. Alike at
  /// both ends.
  std::uint64_t ahead = 1 << 20;
};

/// Who makes the connections.
class TcpOwner {
 public:
  /// An endpoint has something to send and no connection: adopt() is to follow. Called within
  /// send(), once for each endpoint; it may not call the transport.
  virtual void on_wanted(EndpointId endpoint) = 0;
  /// The connection of an endpoint has ended, and nobody had closed the endpoint: with peer_lost if
  /// the peer has ended it, exhausted if there is no memory for what comes, else link_lost. Called
  /// as `done` is.
  virtual void on_lost(EndpointId endpoint, Code code) = 0;

 protected:
  ~TcpOwner() = default;
};

class TcpTransport : public Transport {
 public:
  /// Before the first send; null: nobody. The owner outlives the transport.
  virtual void set_owner(TcpOwner* owner) noexcept = 0;
  /// Gives an endpoint its connection. Where it has had one already, or is closed, the connection
  /// ends. Fails with `exhausted` if the socket cannot be watched.
  virtual Status adopt(EndpointId endpoint, TcpConnection connection) = 0;
  /// Ends the connections whose other host has not answered for too long (Silence), though what was
  /// sent there waits for it; with link_lost, told as on_lost() is. To be called now and then.
  virtual void end_silent(Clock::time_point now) noexcept = 0;
  /// Whether it has had one.
  virtual bool has_met(EndpointId endpoint) const noexcept = 0;
};

/// Fails with `exhausted` where there is no descriptor left.
Result<std::unique_ptr<TcpTransport>> make_tcp(TcpOptions options, const Logger& logger = {});

}  // namespace xylem::transport
