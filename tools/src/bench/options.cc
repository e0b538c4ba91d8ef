// SPDX-License-Identifier: Apache-2.0
//
// Computes the sizes of a sweep.
#include "bench/options.h"

namespace xylem::tools {

std::vector<Bytes> sweep(const BenchOptions& options) {
  std::vector<Bytes> sizes;
  for (std::uint64_t size = options.begin.value; size <= options.end.value;
       size *= options.factor) {
    sizes.push_back({size});
    if (size > options.end.value / options.factor)
      break;  // the next one would not fit, or overflow
  }
  return sizes;
}

}  // namespace xylem::tools
