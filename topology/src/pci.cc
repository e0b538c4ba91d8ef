// SPDX-License-Identifier: Apache-2.0
#include "xylem/topology/pci.h"

#include "text.h"

#include <fmt/format.h>

namespace xylem::topology {

Result<PciAddress> PciAddress::parse(std::string_view text) {
  const auto malformed = [&] {
    return failure(
        Code::invalid_argument,
        fmt::format("\"{}\" is no PCI address (domain:bus:device.function in hexadecimal, "
                    "such as 0000:3b:00.0)",
                    excerpt(text)));
  };
  PciAddress address;
  std::string_view rest = text;
  const auto dot = rest.rfind('.');
  if (dot == std::string_view::npos) return malformed();
  const auto function = parse_number<std::uint8_t>(rest.substr(dot + 1), 16);
  rest = rest.substr(0, dot);

  const auto last_colon = rest.rfind(':');
  if (last_colon == std::string_view::npos) return malformed();
  const auto device = parse_number<std::uint8_t>(rest.substr(last_colon + 1), 16);
  rest = rest.substr(0, last_colon);

  if (const auto colon = rest.find(':'); colon != std::string_view::npos) {
    const auto domain = parse_number<std::uint32_t>(rest.substr(0, colon), 16);
    if (!domain) return malformed();
    address.domain = *domain;
    rest = rest.substr(colon + 1);
  }
  const auto bus = parse_number<std::uint8_t>(rest, 16);
  if (!bus || !device || !function || *device > 31 || *function > 7) return malformed();
  address.bus = *bus;
  address.device = *device;
  address.function = *function;
  return address;
}

std::string PciAddress::to_string() const {
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", domain, bus, device, function);
}

}  // namespace xylem::topology
