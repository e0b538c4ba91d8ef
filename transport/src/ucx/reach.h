// SPDX-License-Identifier: Apache-2.0
//
// The reach rule: which of UCX's transports a context may use. The rule lists the allowed
// transports of this machine by kind, not the forbidden ones. So no transport that UCX or its
// environment variables add can be used by accident.
#pragma once

#include "xylem/base/status.h"
#include "xylem/transport/ucx.h"

#include <span>
#include <string>
#include <string_view>

namespace xylem::transport::ucx {

/// "network" or "tcp".
std::string_view name(UcxReach reach) noexcept;

/// Whether a context of this reach may use the device.
bool allows(UcxReach reach, const UcxDevice& device) noexcept;

/// The value of UCX's TLS variable. Fails with `unsupported`, naming the devices found, if no
/// device of this reach carries messages to other processes.
Result<std::string> allowed_transports(UcxReach reach, std::span<const UcxDevice> devices);

/// Whether all devices of the reach copy the bytes of a send during calls of UCX, so that nothing
/// reads the buffer between calls. False for RDMA devices, which read the buffer at any time.
bool copies_on_send(UcxReach reach, std::span<const UcxDevice> devices) noexcept;

/// The value of UCX's NET_DEVICES variable: the devices in `options`, each of which must exist and
/// belong to this reach.
Result<std::string> allowed_devices(const UcxOptions& options, std::span<const UcxDevice> devices);

}  // namespace xylem::transport::ucx
