// SPDX-License-Identifier: Apache-2.0
//
// Devices: which network devices UCX may use, from what there is, XYLEM_DEVICES and
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

/// UCX's names of the RDMA ports that XYLEM_DEVICES allows. Fails with invalid_argument, naming
/// what there is, if there are none.
Result<std::vector<std::string>> choose_rdma_devices(std::span<const transport::UcxDevice> found,
                                                     const Config& config);
/// The network interface, if UCX can use it.
Result<std::vector<std::string>> choose_tcp_device(std::span<const transport::UcxDevice> found,
                                                   std::string_view interface);
/// Whether choose_rdma_devices() finds any on this machine. UCX is asked only where the kernel
/// knows RDMA devices.
bool has_rdma(const Config& config);

}  // namespace xylem::runtime
