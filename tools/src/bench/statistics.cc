// SPDX-License-Identifier: Apache-2.0
//
// Order statistics by sorting, since a row has thousands of samples and not millions.
#include "bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace xylem::tools {

Statistics summarize(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::ranges::sort(samples);
  const std::size_t count = samples.size();
  const std::size_t middle = count / 2;
  constexpr double kNearlyAll = 0.99;
  const auto not_exceeding =
      static_cast<std::size_t>(std::ceil(kNearlyAll * static_cast<double>(count)));
  Statistics result;
  result.min = samples.front();
  result.p50 = count % 2 == 1 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
  result.p99 = samples[not_exceeding - 1];
  return result;
}

}  // namespace xylem::tools
