// SPDX-License-Identifier: Apache-2.0
//
// Conversion of deadlines to the unit of poll().
#include "xylem/base/clock.h"

#include <limits>

namespace xylem {

int Deadline::left_ms() const noexcept {
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(left()).count();
  constexpr int kLongest = std::numeric_limits<int>::max();
  return milliseconds < kLongest ? static_cast<int>(milliseconds) : kLongest;
}

}  // namespace xylem
