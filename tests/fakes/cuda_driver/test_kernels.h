// SPDX-License-Identifier: Apache-2.0
//
// The parameters of the kernels that test the stand-in.
#pragma once

#include <cstdint>

namespace xylem::fake_cuda::test {

/// The parameters of test_add, target[i] += source[i], and of test_copy, target[i] = source[i].
struct TestArguments {
  std::uint32_t* target = nullptr;
  const std::uint32_t* source = nullptr;
  std::uint64_t count = 0;
};

}  // namespace xylem::fake_cuda::test
