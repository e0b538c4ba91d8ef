// SPDX-License-Identifier: Apache-2.0
//
// tcp: tagged messages over sockets that the owner of the transport has connected (connections.h).
//
// Unless Protection is off, every frame is sealed with keys that belong to its connection (seal.h).
// So the transport accepts only frames of a peer that has the keys, each once and in order. Any
// other data ends the connection.
#pragma once

#include "xylem/base/log.h"
#include "xylem/base/status.h"
#include "xylem/transport/connections.h"
#include "xylem/transport/transport.h"

#include <cstdint>
#include <memory>
#include <string>

namespace xylem::transport {

struct TcpOptions {
  /// The name of the network interface, which paths() reports as the device.
  std::string device = "tcp";
  /// How many bytes a peer may send before the receives for them are posted; further messages wait
  /// at the sender. The value must be the same at both ends.
  std::uint64_t ahead = 1 << 20;
};

/// Makes a transport that has the interface Connections. Fails with `exhausted` if the process has
/// no file descriptor left.
Result<std::unique_ptr<Transport>> make_tcp(TcpOptions options, const Logger& logger = {});

}  // namespace xylem::transport
