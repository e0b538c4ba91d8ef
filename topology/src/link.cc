// SPDX-License-Identifier: Apache-2.0
//
// Rates of PCIe links, and names of nodes and links.
#include "xylem/topology/link.h"

#include "enum_names.h"
#include "text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace xylem::topology {
namespace {

constexpr std::array kGenerationSpeeds{2.5, 5.0, 8.0, 16.0, 32.0, 64.0, 128.0};

/// The fraction of transferred bits that is data.
double coding_efficiency(double gigatransfers) {
  if (gigatransfers <= 5) return 8.0 / 10.0;
  if (gigatransfers <= 32) return 128.0 / 130.0;
  return 242.0 / 256.0;
}

}  // namespace

std::string_view name(Origin origin) noexcept { return name_of(origin); }
std::string_view name(NodeKind kind) noexcept { return name_of(kind); }
std::string_view name(LinkKind kind) noexcept { return name_of(kind); }

Rate pcie_rate(double gigatransfers, std::uint32_t width) {
  constexpr double kBitsPerByte = 8;
  Rate rate;
  rate.width = width;
  rate.speed = gigatransfers;
  rate.bandwidth = GBps{gigatransfers * coding_efficiency(gigatransfers) * width / kBitsPerByte};
  rate.origin = Origin::derived;
  return rate;
}

std::optional<int> pcie_generation(double gigatransfers) noexcept {
  const auto at = std::ranges::find(kGenerationSpeeds, gigatransfers);
  if (at == kGenerationSpeeds.end()) return std::nullopt;
  return static_cast<int>(at - kGenerationSpeeds.begin()) + 1;
}

Result<NodeRef> NodeRef::parse(std::string_view text) {
  const auto digits = text.find_first_of("0123456789");
  if (digits != std::string_view::npos) {
    const auto kind = enumerator_of<NodeKind>(text.substr(0, digits));
    const auto index = parse_number<std::uint32_t>(text.substr(digits));
    if (kind && index) return NodeRef{*kind, *index};
  }
  return failure(Code::invalid_argument,
                 fmt::format("\"{}\" names no node (a kind and an index, such as gpu0 or bridge12)",
                             excerpt(text)));
}

std::string NodeRef::to_string() const { return fmt::format("{}{}", name_of(kind), index); }

}  // namespace xylem::topology
