// SPDX-License-Identifier: Apache-2.0
//
// "did you mean …": finds the known name that is most similar to what a user wrote.
#pragma once

#include <span>
#include <string_view>

namespace xylem {

/// The candidate with the smallest edit distance to `text` (inserted, deleted and replaced
/// characters, ignoring case). Empty if this distance exceeds a third of the length of the longer
/// of the two.
std::string_view nearest_name(std::string_view text, std::span<const std::string_view> candidates);

}  // namespace xylem
