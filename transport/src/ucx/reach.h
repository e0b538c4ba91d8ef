// SPDX-License-Identifier: Apache-2.0
//
// The reach rule: which of UCX's transports a context may use. The list is made of what this
// machine has, by kind, and is always a list of what is allowed, so that nothing UCX or its
// environment adds can slip in.
#pragma once

#include "xylem/base/status.h"
#include "xylem/transport/ucx.h"

#include <span>
#include <string>
#include <string_view>

namespace xylem::transport::ucx {

/// "host", "network" or "tcp".
std::string_view name(UcxReach reach) noexcept;

/// Whether a context of this reach may use the device.
bool allows(UcxReach reach, const UcxDevice& device) noexcept;

/// The value for UCX's TLS. `unsupported`, naming what there is, without any wire of this reach.
Result<std::string> allowed_transports(UcxReach reach, std::span<const UcxDevice> devices);

/// Whether all wires of the reach copy a send's bytes when UCX is called and none reads them later,
/// as RDMA does.
bool copies_on_send(UcxReach reach, std::span<const UcxDevice> devices) noexcept;

/// The value for UCX's NET_DEVICES: the options' devices, each of which must exist and be of this
/// reach.
Result<std::string> allowed_devices(const UcxOptions& options, std::span<const UcxDevice> devices);

}  // namespace xylem::transport::ucx
