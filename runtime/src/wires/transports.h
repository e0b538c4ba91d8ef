// SPDX-License-Identifier: Apache-2.0
//
// Which transports a job may use. To add a transport, add its WireKind to configured_wires().
#pragma once

#include "config.h"
#include "wires/hosts.h"
#include "wires/wire.h"
#include "xylem/base/log.h"
#include "xylem/transport/device_memory.h"

#include <functional>
#include <string>
#include <vector>

namespace xylem::runtime {

/// Returns the kinds of transport that a job on these hosts may use, in order of preference. Must
/// return the same on all ranks. `devices` must outlive the transports; null if there are none.
using WireKinds =
    std::function<std::vector<WireKind>(const Hosts& hosts, transport::DeviceMemory* devices)>;

/// The transports that the configuration allows.
WireKinds configured_wires(const Config& config, const Logger& logger);

}  // namespace xylem::runtime
