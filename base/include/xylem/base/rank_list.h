// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace xylem {

/// A list of ranks, in increasing order, as text: "3", "0, 1, 2" or "0-511, 514". A long list is
/// cut after 16 numbers or ranges, and ends in " and 17 more".
std::string rank_list(std::span<const std::uint32_t> ranks);

}  // namespace xylem
