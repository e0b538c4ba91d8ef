// SPDX-License-Identifier: Apache-2.0
//
// The division that ends an average of integers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace xylem::execution {

/// values[i] = values[i] / divisor, truncated toward zero, for the eight integer types. `divisor`
/// ≥ 1.
template <typename T>
void divide(T* values, std::size_t count, std::uint32_t divisor);

}  // namespace xylem::execution
