// SPDX-License-Identifier: Apache-2.0
//
// The parameters of the kernels that test the stand-in.
#pragma once

#include <cstdint>

namespace xylem::fake_cuda::test {

/// The parameters of test_add, target[i] += source[i], and of test_copy, target[i] = source[i].
///
/// test_put, with one block, writes 1 to *target. Then it writes what others see there to
/// source[0], and again to source[1] after a fence. If `count` is 2, it reads *target once more
/// after a wait for source[0], without a fence.
struct TestArguments {
  std::uint32_t* target = nullptr;
  const std::uint32_t* source = nullptr;
  std::uint64_t count = 0;
};

}  // namespace xylem::fake_cuda::test
