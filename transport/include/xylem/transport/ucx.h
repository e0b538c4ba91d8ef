// SPDX-License-Identifier: Apache-2.0
//
// ucx: tagged messages over UCP, on the network fabrics that UCX supports, for peers on other
// hosts. One object is one UCP context with one worker. It never uses shared memory.
//
// The first call of make_ucx() or ucx_devices() opens UCX's library (libucp.so.0). If there is no
// library, both functions fail with `unsupported`, and the message contains the reason.
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

/// Which fabrics a UCX transport may use.
enum class UcxReach : std::uint8_t {
  network,  ///< RDMA where available, otherwise TCP; never shared memory.
  tcp,      ///< TCP only.
};

struct UcxOptions {
  UcxReach reach = UcxReach::network;
  /// Network devices that UCX may use, by UCX's names ("eth0", "mlx5_0:1"). Empty: UCX chooses.
  std::vector<std::string> devices;
  /// The interval of UCX's keepalive messages, by which UCX detects that a silent peer has died.
  std::chrono::milliseconds keepalive{300};
};

/// Makes the context and the worker. Fails with `unsupported`, naming the transports that UCX
/// found, if none of them belongs to this reach.
Result<std::unique_ptr<Transport>> make_ucx(const UcxOptions& options, const Logger& logger);

/// The version of UCX's library, such as "1.13.1"; empty if this process has not opened it.
std::string ucx_version();

/// One transport and device of UCX. `kind` states its purpose, which the names do not show.
struct UcxDevice {
  /// `accelerator` copies to or from GPU memory, or between processes through GPU memory. `self`
  /// carries messages within one process.
  enum class Kind : std::uint8_t { network, shared_memory, accelerator, self };
  std::string transport;  ///< "tcp", "rc_verbs", "posix".
  std::string device;     ///< "eth0", "mlx5_0:1", "memory".
  Kind kind = Kind::network;
};
/// Every (transport, device) that UCX finds on this machine.
Result<std::vector<UcxDevice>> ucx_devices();

}  // namespace xylem::transport
