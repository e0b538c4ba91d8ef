// SPDX-License-Identifier: Apache-2.0
//
// Which transports a job may use. The runtime knows a new transport when its kind is listed here.
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

/// The kinds of transport that a job may use, given its hosts, in the order in which two ranks
/// prefer them. The same on all ranks. `devices`, null if there are none, outlive the transports.
using WireKinds =
    std::function<std::vector<WireKind>(const Hosts& hosts, transport::DeviceMemory* devices)>;

/// The transports that the configuration allows. `interface` is the network interface by which the
/// rendezvous is reached.
WireKinds configured_wires(const Config& config, std::string interface, const Logger& logger);

}  // namespace xylem::runtime
