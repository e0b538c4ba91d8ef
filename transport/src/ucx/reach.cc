// SPDX-License-Identifier: Apache-2.0
//
// Selects the transports and devices for a reach.
#include "ucx/reach.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace xylem::transport::ucx {
namespace {

using Kind = UcxDevice::Kind;

std::string describe(std::span<const UcxDevice> devices) {
  std::set<std::string> found;
  for (const UcxDevice& device : devices) {
    found.insert(device.transport + '/' + device.device);
  }
  return found.empty() ? "nothing" : fmt::format("{}", fmt::join(found, ", "));
}

}  // namespace

std::string_view name(UcxReach reach) noexcept {
  switch (reach) {
    case UcxReach::network: return "network";
    case UcxReach::tcp: return "tcp";
  }
  return "unknown";
}

bool allows(UcxReach reach, const UcxDevice& device) noexcept {
  if (device.kind == Kind::self) return true;
  switch (reach) {
    case UcxReach::network:
      // Copy engines (cuda_copy, rocm_copy) are allowed: they move data between a GPU and the host
      // within one process. The IPC of an accelerator (rocm_ipc) is not allowed, since it is a kind
      // of shared memory.
      return device.kind == Kind::network ||
             (device.kind == Kind::accelerator && !device.transport.ends_with("_ipc"));
    case UcxReach::tcp: return device.kind == Kind::network && device.transport == "tcp";
  }
  return false;
}

bool copies_on_send(UcxReach reach, std::span<const UcxDevice> devices) noexcept {
  return std::ranges::all_of(devices, [&](const UcxDevice& device) {
    return !allows(reach, device) || device.kind == Kind::self || device.transport == "tcp";
  });
}

Result<std::string> allowed_transports(UcxReach reach, std::span<const UcxDevice> devices) {
  std::set<std::string> names;
  bool has_wire = false;
  for (const UcxDevice& device : devices) {
    if (!allows(reach, device)) continue;
    names.insert(device.transport);
    has_wire = has_wire || device.kind == Kind::network;
  }
  if (!has_wire) {
    return failure(Code::unsupported,
                   fmt::format("UCX has no wire of reach {} on this machine, only {}: install its "
                               "module, or choose another transport",
                               name(reach), describe(devices)));
  }
  return fmt::format("{}", fmt::join(names, ","));
}

Result<std::string> allowed_devices(const UcxOptions& options, std::span<const UcxDevice> devices) {
  for (const std::string& wanted : options.devices) {
    const bool exists = std::ranges::any_of(devices, [&](const UcxDevice& each) {
      return each.kind == Kind::network && each.device == wanted && allows(options.reach, each);
    });
    if (!exists) {
      return failure(
          Code::invalid_argument,
          fmt::format("UCX cannot use network device {} for reach {}: name one of the devices that "
                      "it can use: {}",
                      wanted, name(options.reach), describe(devices)));
    }
  }
  return fmt::format("{}", fmt::join(options.devices, ","));
}

}  // namespace xylem::transport::ucx
