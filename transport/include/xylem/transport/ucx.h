// SPDX-License-Identifier: Apache-2.0
//
// ucx: tagged messages over UCP, on every fabric UCX can drive. One object is one UCP context and
// worker. A job uses up to two: one for peers proven to be on this host, which is never allowed
// TCP, and one for all others, which is never allowed shared memory; so neither can fall silently
// to the wrong wire.
#pragma once

#include "xylem/base/log.h"
#include "xylem/base/status.h"
#include "xylem/transport/transport.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace xylem::transport {

/// Which wires a UCX transport may use.
enum class UcxReach : std::uint8_t {
  host,     ///< Shared memory and cross-memory attach: posix, sysv, cma, self.
  network,  ///< RDMA where there is some, else TCP: never shared memory.
  tcp,      ///< TCP alone.
};

struct UcxOptions {
  UcxReach reach = UcxReach::host;
  /// Network devices UCX may use, in UCX's names ("eth0", "mlx5_0:1"); empty: UCX's choice. Ignored
  /// for `host`.
  std::vector<std::string> devices;
  /// How soon the death of a silent peer is noticed; ignored for `host`.
  std::chrono::milliseconds keepalive{300};
};

/// Makes the context and worker. Fails with `unsupported`, naming what UCX offers, if no wire of
/// this reach exists.
Result<std::unique_ptr<Transport>> make_ucx(const UcxOptions& options, const Logger& logger);

/// "1.13.1": the UCX library loaded.
std::string ucx_version();

/// One of UCX's ways to move bytes. What it is for is told by its kind, not by its name.
struct UcxDevice {
  /// `accelerator`: copies to and from a GPU's memory, or between processes through it.
  enum class Kind : std::uint8_t { network, shared_memory, accelerator, self };
  std::string transport;  ///< "tcp", "rc_verbs", "posix".
  std::string device;     ///< "eth0", "mlx5_0:1", "memory".
  Kind kind = Kind::network;
};
/// Every (transport, device) UCX finds on this machine.
Result<std::vector<UcxDevice>> ucx_devices();

}  // namespace xylem::transport
