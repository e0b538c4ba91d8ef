// SPDX-License-Identifier: Apache-2.0
//
// Statistics of the samples of a row. One sample is the time of one call on the slowest rank.
#pragma once

#include <vector>

namespace xylem::tools {

/// Order statistics, in the unit of the samples. `p50` of an even number of samples is the mean of
/// the middle two. `p99` is the smallest sample that is at least as large as 99 % of the samples.
struct Statistics {
  double min = 0;
  double p50 = 0;
  double p99 = 0;
};

/// All zero if there are no samples.
Statistics summarize(std::vector<double> samples);

}  // namespace xylem::tools
