// SPDX-License-Identifier: Apache-2.0
//
// Rates of PCIe links.
#include "xylem/topology/link.h"

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

}  // namespace xylem::topology
