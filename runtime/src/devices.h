// SPDX-License-Identifier: Apache-2.0
//
// Devices: which network devices the network wire may use, from what there is, XYLEM_DEVICES and
// XYLEM_INTERFACES.
#pragma once

#include "config.h"
#include "xylem/base/status.h"
#include "xylem/transport/ucx.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace xylem::runtime {

/// `names` kept by a filter: "a,b" keeps those, "^a,b" all but those, "" all.
std::vector<std::string> filter_names(const std::vector<std::string>& names,
                                      std::string_view filter);

/// UCX's names of the devices to use: RDMA ports kept by XYLEM_DEVICES (none with `tcp_only`), and
/// the network interface. Fails with invalid_argument, naming what there is, if nothing is left.
Result<std::vector<std::string>> choose_devices(std::span<const transport::UcxDevice> found,
                                                const Config& config,
                                                std::string_view interface,
                                                bool tcp_only);

}  // namespace xylem::runtime
