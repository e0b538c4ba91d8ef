// SPDX-License-Identifier: Apache-2.0
//
// Card: what a rank leaves in the store for those who will call it: its version, its host, and the
// address where it listens.
#pragma once

#include "bootstrap/handshake.h"
#include "bootstrap/host_identity.h"
#include "bootstrap/socket_address.h"
#include "bootstrap/wire.h"
#include "xylem/base/status.h"

#include <string>

namespace xylem::runtime {

struct Card {
  Dialect dialect;
  HostIdentity host;
  SocketAddress address;

  ByteVector write() const;
  /// Another dialect is read as far as its name, so that it can be named: `address` is then not
  /// set.
  static Result<Card> read(ByteSpan bytes);
};

}  // namespace xylem::runtime
