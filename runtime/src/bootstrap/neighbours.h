// SPDX-License-Identifier: Apache-2.0
//
// The ranks to which a rank's control plane is connected: rank ± 2^k (mod n) for all powers of two
// below n. They include the neighbours in the ring and every partner of a Bruck gather. When ranks
// end, the remaining ranks stay connected to each other, directly or over others, as long as fewer
// ranks have ended than a rank has neighbours.
//
//   n = 8, rank 0:    1 2 4     (and 7 6 4)
#pragma once

#include <cstdint>
#include <vector>

namespace xylem::runtime {

/// The neighbours, sorted, without `rank` itself; at most 2 * ceil(log2 size).
std::vector<std::uint32_t> neighbours(std::uint32_t rank, std::uint32_t size);

}  // namespace xylem::runtime
