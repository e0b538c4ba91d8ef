// SPDX-License-Identifier: Apache-2.0
//
// Determines which lanes an endpoint uses, by parsing UCX's description of the endpoint. UCX 1.13
// has no call that returns the lanes.
#pragma once

#include "xylem/transport/transport.h"

#include <string_view>
#include <vector>

namespace xylem::transport::ucx {

/// The lanes in the text of ucp_ep_print_info(), in the order of the text. Other lines are skipped.
/// The following line becomes {"tcp", "eth0"}:
///   #  lane[0]:  1:tcp/eth0.0 md[1]  -> md[1]/tcp/sysdev[255] am
std::vector<PhysicalPath> parse_lanes(std::string_view endpoint_info);

}  // namespace xylem::transport::ucx
