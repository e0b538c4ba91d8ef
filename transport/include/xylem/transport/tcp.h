// SPDX-License-Identifier: Apache-2.0
//
// tcp: tagged messages over sockets that the owner of the transport has connected (connections.h).
//
// Every frame is sealed with keys that belong to its connection (seal.h). So only frames of a peer
// that has the keys are accepted, each once and in order. Anything else ends the connection.
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
  /// The device name that paths() reports: the network interface.
  std::string device = "tcp";
  /// How many bytes a peer may send before the receives for them are posted; further messages wait
  /// at the sender. The value must be the same at both ends.
  std::uint64_t ahead = 1 << 20;
};

/// Makes a transport that has Connections. Fails with `exhausted` if the process has no file
/// descriptor left.
Result<std::unique_ptr<Transport>> make_tcp(TcpOptions options, const Logger& logger = {});

}  // namespace xylem::transport
