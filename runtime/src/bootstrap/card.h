// SPDX-License-Identifier: Apache-2.0
//
// Card: what a rank publishes in the store for the ranks that will connect to it: its version, its
// host, and the address where it listens.
#pragma once

#include "bootstrap/handshake.h"
#include "bootstrap/host_identity.h"
#include "bootstrap/socket_address.h"
#include "bootstrap/wire_format.h"
#include "xylem/base/status.h"

#include <string>

namespace xylem::runtime {

struct Card {
  Dialect dialect;
  HostIdentity host;
  SocketAddress address;

  ByteVector write() const;
  /// If the card has another protocol version, `host` stays unset: only the version and the address
  /// are read, so that an error message can name the version.
  static Result<Card> read(ByteSpan bytes);
};

}  // namespace xylem::runtime
