// SPDX-License-Identifier: Apache-2.0
//
// Tests that run over several transports and with several numbers of ranks.
#pragma once

#include "support/ranks.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <tuple>

namespace xylem::test {

class OverTransports : public testing::TestWithParam<std::tuple<const char*, std::uint32_t>> {
 public:
  /// The values for INSTANTIATE_TEST_SUITE_P.
  static auto all() {
    return testing::Combine(testing::Values("loopback", "shm", "tcp"),
                            testing::Values(1, 2, 3, 5, 8));
  }
  static std::string name(const testing::TestParamInfo<ParamType>& case_of) {
    return std::get<0>(case_of.param) + std::to_string(std::get<1>(case_of.param));
  }

 protected:
  /// Options for one case. Over loopback, `seed` determines the order in which messages arrive.
  static RankOptions options(std::uint64_t seed) {
    RankOptions options;
    options.transport = std::get<0>(GetParam());
    options.size = std::get<1>(GetParam());
    options.seed = seed + options.size;
    return options;
  }
};

}  // namespace xylem::test
