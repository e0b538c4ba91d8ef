// SPDX-License-Identifier: Apache-2.0
//
// Parses the PCI ID database: a list of vendors, each followed by its devices, indented by one tab,
// and their subsystems, indented by two.
//
//   10de  NVIDIA Corporation
//   \t2330  GH100 [H100 SXM5 80GB]
//   \t\t10de 16c1  …
//   C 03  Display controller          (classes, after all vendors)
#include "text.h"
#include "xylem/topology/discover.h"

#include <cstdint>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace xylem::topology {
namespace {

/// The names to look up, by vendor and device. The value is empty until the name is found. A key
/// without a device stands for the name of the vendor.
using Wanted = std::map<std::pair<std::uint16_t, std::optional<std::uint16_t>>, std::string>;

template <typename Visit>
void for_each_function(Machine& machine, const Visit& visit) {
  for (Bridge& bridge : machine.bridges) visit(bridge.pci);
  for (Gpu& gpu : machine.gpus) visit(gpu.pci);
  for (Nic& nic : machine.nics) visit(nic.pci);
  for (NvSwitch& nvswitch : machine.nvswitches) visit(nvswitch.pci);
}

/// Parses a line such as "2330  GH100 [H100 SXM5 80GB]": four digits, blanks, a name.
std::optional<std::pair<std::uint16_t, std::string>> parse_entry(std::string_view line) {
  constexpr std::size_t kDigits = 4;
  if (line.size() <= kDigits || line[kDigits] != ' ') return std::nullopt;
  const auto id = parse_number<std::uint16_t>(line.substr(0, kDigits), 16);
  if (!id) return std::nullopt;
  return std::pair(*id, clean_text(line.substr(kDigits)));
}

void find_names(std::istream& database, Wanted& wanted) {
  std::optional<std::uint16_t> vendor;
  for (std::string line; std::getline(database, line);) {
    const bool is_device = line.starts_with('\t');
    if (line.empty() || line.starts_with('#') || line.starts_with("\t\t")) continue;
    const auto entry = parse_entry(std::string_view(line).substr(is_device ? 1 : 0));
    if (!is_device) vendor = entry ? std::optional(entry->first) : std::nullopt;
    if (!entry || !vendor) continue;
    const auto device = is_device ? std::optional(entry->first) : std::nullopt;
    if (const auto name = wanted.find({*vendor, device}); name != wanted.end())
      name->second = entry->second;
  }
}

}  // namespace

bool add_pci_names(Machine& machine, const std::string& path) {
  std::ifstream database(path);
  if (!database) return false;
  Wanted wanted;
  for_each_function(machine, [&](const PciDevice& pci) {
    wanted[{pci.id.vendor, std::nullopt}];
    wanted[{pci.id.vendor, pci.id.device}];
  });
  find_names(database, wanted);
  for_each_function(machine, [&](PciDevice& pci) {
    if (pci.vendor.empty()) pci.vendor = wanted[{pci.id.vendor, std::nullopt}];
    if (pci.model.empty()) pci.model = wanted[{pci.id.vendor, pci.id.device}];
  });
  for (Gpu& gpu : machine.gpus) {
    if (gpu.model.empty()) gpu.model = gpu.pci.model;
  }
  return true;
}

}  // namespace xylem::topology
