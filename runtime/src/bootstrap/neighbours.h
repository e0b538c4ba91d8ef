// SPDX-License-Identifier: Apache-2.0
//
// Whom a rank is connected to: rank ± 2^k (mod n) for all powers of two below n. That contains the
// ring and every partner of a Bruck exchange, and no cut of fewer ranks than one has neighbours
// divides the rest.
//
//   n = 8, rank 0:    1 2 4     (and 7 6 4)
#pragma once

#include <cstdint>
#include <vector>

namespace xylem::runtime {

/// Sorted, without `rank` itself; at most 2 * ceil(log2 size).
std::vector<std::uint32_t> neighbours(std::uint32_t rank, std::uint32_t size);

}  // namespace xylem::runtime
