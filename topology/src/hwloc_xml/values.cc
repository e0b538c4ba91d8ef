// SPDX-License-Identifier: Apache-2.0
#include "hwloc_xml/values.h"

#include "text.h"

#include <utility>

namespace xylem::topology::hwloc_xml {
namespace {

/// Reads "[10de:2335]" at the start of `text` and removes it.
std::optional<std::pair<std::uint16_t, std::uint16_t>> take_pair(std::string_view& text) {
  const auto open = text.find('[');
  const auto colon = text.find(':', open);
  const auto close = text.find(']', colon);
  if (close == std::string_view::npos) return std::nullopt;
  const auto first = parse_number<std::uint16_t>(text.substr(open + 1, colon - open - 1), 16);
  const auto second = parse_number<std::uint16_t>(text.substr(colon + 1, close - colon - 1), 16);
  if (!first || !second) return std::nullopt;
  text.remove_prefix(close + 1);
  return std::pair(*first, *second);
}

}  // namespace

std::optional<PciType> parse_pci_type(std::string_view text) {
  PciType type;
  const auto space = text.find(' ');
  const auto pci_class = parse_number<std::uint16_t>(text.substr(0, space), 16);
  if (!pci_class || space == std::string_view::npos) return std::nullopt;
  type.pci_class = *pci_class;
  text.remove_prefix(space);
  const auto device = take_pair(text);
  const auto subsystem = device ? take_pair(text) : std::nullopt;
  if (!subsystem) return std::nullopt;
  type.id = {device->first, device->second, subsystem->first, subsystem->second};
  return type;
}

std::optional<BusRange> parse_bus_range(std::string_view text) {
  const auto colon = text.find(":[");
  const auto dash = text.find('-', colon);
  if (colon == std::string_view::npos || dash == std::string_view::npos || !text.ends_with(']')) {
    return std::nullopt;
  }
  const auto domain = parse_number<std::uint32_t>(text.substr(0, colon), 16);
  const auto first = parse_number<std::uint8_t>(text.substr(colon + 2, dash - colon - 2), 16);
  const auto last = parse_number<std::uint8_t>(text.substr(dash + 1, text.size() - dash - 2), 16);
  if (!domain || !first || !last || *first > *last) return std::nullopt;
  return BusRange{*domain, *first, *last};
}

}  // namespace xylem::topology::hwloc_xml
