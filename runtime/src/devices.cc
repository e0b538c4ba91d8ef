// SPDX-License-Identifier: Apache-2.0
#include "devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace xylem::runtime {
namespace {

/// "mlx5_0" of "mlx5_0:1".
std::string_view without_port(std::string_view device) {
  return device.substr(0, device.find(':'));
}

bool listed(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    const auto comma = list.find(',');
    const auto item = list.substr(0, comma);
    if (item == name || item == without_port(name)) return true;
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
  }
  return false;
}

}  // namespace

std::vector<std::string> filter_names(const std::vector<std::string>& names,
                                      std::string_view filter) {
  if (filter.empty()) return names;
  const bool exclude = filter.front() == '^';
  if (exclude) filter.remove_prefix(1);
  std::vector<std::string> kept;
  std::ranges::copy_if(names, std::back_inserter(kept),
                       [&](const std::string& name) { return listed(filter, name) != exclude; });
  return kept;
}

Result<std::vector<std::string>> choose_devices(std::span<const transport::UcxDevice> found,
                                                const Config& config,
                                                std::string_view interface,
                                                bool tcp_only) {
  std::vector<std::string> rdma, tcp;
  for (const auto& device : found) {
    if (device.kind != transport::UcxDevice::Kind::network) continue;
    auto& names = device.transport == "tcp" ? tcp : rdma;
    if (std::ranges::find(names, device.device) == names.end()) names.push_back(device.device);
  }
  std::vector<std::string> chosen;
  if (!tcp_only) chosen = filter_names(rdma, config.devices);
  if (config.transport != "ucx-rdma") {
    const std::string wanted(interface);
    if (std::ranges::find(tcp, wanted) != tcp.end()) chosen.push_back(wanted);
  }
  if (chosen.empty()) {
    return failure(
        Code::invalid_argument,
        fmt::format("XYLEM_DEVICES={} and interface {} leave no network device; UCX finds RDMA "
                    "[{}] and TCP [{}]",
                    config.devices, interface, fmt::join(rdma, ", "), fmt::join(tcp, ", ")));
  }
  return chosen;
}

}  // namespace xylem::runtime
