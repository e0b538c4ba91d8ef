// SPDX-License-Identifier: Apache-2.0
//
// "did you mean …": the known name nearest to what was written.
#pragma once

#include <span>
#include <string_view>

namespace xylem {

/// The candidate that takes the fewest inserted, deleted and replaced characters, letter case
/// aside; empty if even that one takes more than a third of the longer of the two.
std::string_view nearest_name(std::string_view text, std::span<const std::string_view> candidates);

}  // namespace xylem
