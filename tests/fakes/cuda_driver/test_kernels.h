// SPDX-License-Identifier: Apache-2.0
//
// The parameters of the kernels that test the stand-in of the driver.
#pragma once

#include <cstdint>

namespace xylem::fake_cuda::test {

/// test_add: target[i] += source[i], and test_copy: target[i] = source[i].
struct TestArguments {
  std::uint32_t* target = nullptr;
  const std::uint32_t* source = nullptr;
  std::uint64_t count = 0;
};

}  // namespace xylem::fake_cuda::test
