// SPDX-License-Identifier: Apache-2.0
//
// Input values of tests that run in rounds, and their sums.
#pragma once

#include "support/buffer_allocator.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace xylem::test {

using Values = std::vector<std::int32_t, BufferAllocator<std::int32_t>>;

/// Element i of the input of `rank` in a round, and element i of the sum over all ranks.
inline std::int32_t given(std::uint32_t rank, int round, std::size_t i) {
  return static_cast<std::int32_t>(i % 1009 + 10'000 * rank) + round;
}
inline std::int32_t summed(std::uint32_t ranks, int round, std::size_t i) {
  return static_cast<std::int32_t>(i % 1009 * ranks + 5'000 * ranks * (ranks - 1)) +
         static_cast<std::int32_t>(ranks) * round;
}

inline Values gift(std::uint32_t rank, int round, std::size_t count) {
  Values values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = given(rank, round, i);
  return values;
}

inline Values sum_of(std::uint32_t ranks, int round, std::size_t count) {
  Values sums(count);
  for (std::size_t i = 0; i < count; ++i) sums[i] = summed(ranks, round, i);
  return sums;
}

}  // namespace xylem::test
