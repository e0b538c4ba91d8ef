// SPDX-License-Identifier: Apache-2.0
#include "wires/rdma_ports.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace xylem::runtime {
namespace {

/// The name of a device without its port: "mlx5_0" for "mlx5_0:1".
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

/// Names of network devices, each once.
struct NetworkDevices {
  std::vector<std::string> rdma, tcp;

  explicit NetworkDevices(std::span<const transport::UcxDevice> found) {
    for (const auto& device : found) {
      if (device.kind != transport::UcxDevice::Kind::network) continue;
      auto& names = device.transport == "tcp" ? tcp : rdma;
      if (std::ranges::find(names, device.device) == names.end()) names.push_back(device.device);
    }
  }
};

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

Result<std::vector<std::string>> choose_rdma_devices(std::span<const transport::UcxDevice> found,
                                                     const Config& config) {
  const NetworkDevices devices(found);
  auto chosen = filter_names(devices.rdma, config.devices);
  if (!chosen.empty()) return chosen;
  return failure(Code::invalid_argument,
                 fmt::format("XYLEM_DEVICES={} leaves no RDMA device; UCX finds [{}]",
                             config.devices, fmt::join(devices.rdma, ", ")));
}

Result<std::vector<std::string>> choose_tcp_device(std::span<const transport::UcxDevice> found,
                                                   std::string_view interface) {
  const NetworkDevices devices(found);
  const std::string wanted(interface);
  if (std::ranges::find(devices.tcp, wanted) != devices.tcp.end()) return std::vector{wanted};
  return failure(Code::invalid_argument,
                 fmt::format("UCX cannot use interface {} for TCP; it finds [{}]", interface,
                             fmt::join(devices.tcp, ", ")));
}

std::string why_no_rdma(std::span<const transport::UcxDevice> found) {
  if (!NetworkDevices(found).rdma.empty()) return {};
  return fmt::format(
      "UCX {} finds none that is up, or was built without verbs, as PyPI's is: see `ucx_info -d`, "
      "or "
      "install libucx0 of Debian",
      transport::ucx_version());
}

Status find_rdma(const Config& config, const Logger& logger) {
  if (config.transport != "auto") {
    return failure(Code::unsupported, "XYLEM_TRANSPORT is " + config.transport + ", not auto");
  }
  std::error_code error;
  const std::filesystem::directory_iterator known("/sys/class/infiniband", error);
  if (error || known == std::filesystem::directory_iterator()) {
    return failure(Code::unsupported, "the kernel of its host lists no RDMA devices");
  }
  const auto found = transport::ucx_devices();
  const std::string why_not = found ? why_no_rdma(*found) : std::string(found.status().message());
  if (!why_not.empty()) {
    logger.warn(fmt::format("this host has RDMA devices, but they cannot be used: {}", why_not));
    return failure(Code::unsupported,
                   fmt::format("the RDMA devices of its host cannot be used: {}", why_not));
  }
  return choose_rdma_devices(*found, config).status();
}

}  // namespace xylem::runtime
