// SPDX-License-Identifier: Apache-2.0
//
// Devices: selects the network devices that UCX may use, by XYLEM_DEVICES and XYLEM_INTERFACES.
#pragma once

#include "config.h"
#include "xylem/base/log.h"
#include "xylem/base/status.h"
#include "xylem/transport/ucx.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace xylem::runtime {

/// The names that a filter keeps: "a,b" keeps a and b, "^a,b" keeps all others, "" keeps all.
std::vector<std::string> filter_names(const std::vector<std::string>& names,
                                      std::string_view filter);

/// UCX's names of the RDMA ports that XYLEM_DEVICES allows. If there are none, fails with
/// invalid_argument and names the ports that UCX finds.
Result<std::vector<std::string>> choose_rdma_devices(std::span<const transport::UcxDevice> found,
                                                     const Config& config);
/// The network interface, if UCX can use it for TCP. Otherwise fails with invalid_argument.
Result<std::vector<std::string>> choose_tcp_device(std::span<const transport::UcxDevice> found,
                                                   std::string_view interface);
/// Why no RDMA device can be used, if the kernel knows some and these are what UCX finds. Empty if
/// UCX finds some.
std::string why_no_rdma(std::span<const transport::UcxDevice> found);
/// True if the transport is to be chosen (`auto`) and choose_rdma_devices() finds any RDMA device
/// on this machine. UCX is asked only if the kernel knows RDMA devices, and a warning says why UCX
/// cannot use them.
bool has_rdma(const Config& config, const Logger& logger);

}  // namespace xylem::runtime
