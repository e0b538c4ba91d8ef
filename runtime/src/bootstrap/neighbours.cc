// SPDX-License-Identifier: Apache-2.0
//
// The graph of control connections.
#include "bootstrap/neighbours.h"

#include <algorithm>

namespace xylem::runtime {

std::vector<std::uint32_t> neighbours(std::uint32_t rank, std::uint32_t size) {
  std::vector<std::uint32_t> ranks;
  for (std::uint64_t distance = 1; distance < size; distance *= 2) {
    ranks.push_back(static_cast<std::uint32_t>((rank + distance) % size));
    ranks.push_back(static_cast<std::uint32_t>((rank + size - distance) % size));
  }
  std::ranges::sort(ranks);
  const auto repeated = std::ranges::unique(ranks);
  ranks.erase(repeated.begin(), repeated.end());
  return ranks;
}

}  // namespace xylem::runtime
