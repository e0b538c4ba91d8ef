// SPDX-License-Identifier: Apache-2.0
#include "nic_name.h"

#include <algorithm>
#include <tuple>

namespace xylem::topology {
namespace {

/// Names from the same driver differ in a number at the end, so a shorter name comes first.
auto name_key(const std::string& name) { return std::tuple(name.size(), std::string_view(name)); }

}  // namespace

void name_nics(Machine& machine) {
  for (Nic& nic : machine.nics) {
    std::ranges::sort(nic.ports, [](const Port& left, const Port& right) {
      return std::tuple(name_key(left.device), left.number) <
             std::tuple(name_key(right.device), right.number);
    });
    nic.name = nic.ports.empty() ? std::string() : nic.ports.front().device;
  }
  std::vector<const std::string*> interface_of(machine.nics.size(), nullptr);
  for (const NetInterface& interface : machine.interfaces) {
    if (!interface.nic) continue;
    const std::string*& first = interface_of[*interface.nic];
    if (first == nullptr || name_key(interface.name) < name_key(*first)) first = &interface.name;
  }
  for (std::size_t i = 0; i < machine.nics.size(); ++i) {
    Nic& nic = machine.nics[i];
    if (!nic.name.empty()) continue;
    nic.name = interface_of[i] != nullptr ? *interface_of[i] : nic.pci.address.to_string();
  }
}

}  // namespace xylem::topology
