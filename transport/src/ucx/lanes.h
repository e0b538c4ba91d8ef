// SPDX-License-Identifier: Apache-2.0
//
// Finds out which lanes an endpoint uses by parsing UCX's description of it.
// UCX 1.13 has no call that returns them.
#pragma once

#include "xylem/transport/transport.h"

#include <string_view>
#include <vector>

namespace xylem::transport::ucx {

/// The lanes in the text of ucp_ep_print_info(), in the same order: `#  lane[0]:  1:tcp/eth0.0
/// md[1]  -> md[1]/tcp/sysdev[255] am` gives {"tcp", "eth0"}. Other lines are skipped.
std::vector<PhysicalPath> parse_lanes(std::string_view endpoint_info);

}  // namespace xylem::transport::ucx
