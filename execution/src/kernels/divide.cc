// SPDX-License-Identifier: Apache-2.0
//
// Compiled once, for the lowest instruction set: no instruction set divides vectors of integers,
// and averages of integers are rare.
#include "kernels/divide.h"

#include <type_traits>

namespace xylem::execution {

template <typename T>
void divide(T* values, std::size_t count, std::uint32_t divisor) {
  if constexpr (sizeof(T) <= 4) {
    // fp64 is many times faster than integer division, and exact: a quotient that is not an integer
    // differs from the next integer by at least 1/divisor, far more than the rounding error of
    // fp64.
    const double denominator = divisor;
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = static_cast<T>(static_cast<double>(values[i]) / denominator);
    }
  } else {
    using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = static_cast<T>(values[i] / static_cast<Wide>(divisor));
    }
  }
}

template void divide(std::int8_t*, std::size_t, std::uint32_t);
template void divide(std::uint8_t*, std::size_t, std::uint32_t);
template void divide(std::int16_t*, std::size_t, std::uint32_t);
template void divide(std::uint16_t*, std::size_t, std::uint32_t);
template void divide(std::int32_t*, std::size_t, std::uint32_t);
template void divide(std::uint32_t*, std::size_t, std::uint32_t);
template void divide(std::int64_t*, std::size_t, std::uint32_t);
template void divide(std::uint64_t*, std::size_t, std::uint32_t);

}  // namespace xylem::execution
