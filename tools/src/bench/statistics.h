// SPDX-License-Identifier: Apache-2.0
//
// What a row tells of its samples. One sample is one call: the slowest rank's time of it.
#pragma once

#include <vector>

namespace xylem::tools {

/// In the samples' unit. `p50` of an even number of samples is the mean of the middle two; `p99` is
/// the least sample that at least 99 % of the samples do not exceed.
struct Statistics {
  double min = 0;
  double p50 = 0;
  double p99 = 0;
};

/// All zero without samples.
Statistics summarize(std::vector<double> samples);

}  // namespace xylem::tools
