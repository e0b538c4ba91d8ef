// SPDX-License-Identifier: Apache-2.0
//
// Parses the notations in hwloc's attributes: bus ranges, PCI classes and identifiers.
#pragma once

#include "xylem/topology/pci.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace xylem::topology::hwloc_xml {

struct PciType {
  std::uint16_t pci_class = 0;
  PciId id;
};

/// Reads "0302 [10de:2335] [10de:18bf] a1"; anything after the identifiers is ignored.
std::optional<PciType> parse_pci_type(std::string_view text);

struct BusRange {
  std::uint32_t domain = 0;
  std::uint8_t first = 0;
  std::uint8_t last = 0;
};

/// Reads "0000:[50-54]".
std::optional<BusRange> parse_bus_range(std::string_view text);

}  // namespace xylem::topology::hwloc_xml
