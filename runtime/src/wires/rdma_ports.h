// SPDX-License-Identifier: Apache-2.0
//
// Selects the network devices that UCX may use: for RDMA, the ports that XYLEM_DEVICES allows; for
// TCP, the interface that the caller has chosen.
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
/// Why UCX cannot use the RDMA devices that the kernel lists. `found`: the devices that UCX finds.
/// Empty if `found` contains an RDMA device.
std::string why_no_rdma(std::span<const transport::UcxDevice> found);
/// OK if XYLEM_TRANSPORT is `auto`, and choose_rdma_devices() finds an RDMA device on this machine.
/// Otherwise the message says why RDMA is not used. UCX is queried only if the kernel lists RDMA
/// devices. If UCX cannot use them, a warning says why.
Status find_rdma(const Config& config, const Logger& logger);

}  // namespace xylem::runtime
