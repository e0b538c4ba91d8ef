// SPDX-License-Identifier: Apache-2.0
//
// The header of UCX addresses.
#include "transport/src/ucx/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace xylem::transport::ucx {
namespace {

using ::testing::HasSubstr;

const std::vector<std::byte> kWorkerAddress = {std::byte{1}, std::byte{2}, std::byte{3}};

TEST(UcxAddress, ComesBackAsItWas) {
  for (const UcxReach reach : {UcxReach::network, UcxReach::tcp}) {
    const auto address = wrap_address(reach, kWorkerAddress);
    const auto inner = unwrap_address(reach, address);
    ASSERT_TRUE(inner.is_ok()) << inner.status().to_string();
    EXPECT_TRUE(
        std::equal(inner->begin(), inner->end(), kWorkerAddress.begin(), kWorkerAddress.end()));
  }
}

TEST(UcxAddress, OfAnotherReachIsRefusedByName) {
  const auto status =
      unwrap_address(UcxReach::tcp, wrap_address(UcxReach::network, kWorkerAddress)).status();
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("reach network"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("tcp"));
}

TEST(UcxAddress, AnyFlippedBitIsFound) {
  const auto good = wrap_address(UcxReach::network, kWorkerAddress);
  for (std::size_t i = 0; i < good.size() * 8; ++i) {
    auto bad = good;
    bad[i / 8] ^= static_cast<std::byte>(1U << (i % 8));
    EXPECT_EQ(unwrap_address(UcxReach::network, bad).code(), Code::invalid_argument) << "bit " << i;
  }
}

TEST(UcxAddress, AnyPrefixIsRefused) {
  const auto good = wrap_address(UcxReach::network, kWorkerAddress);
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes) {
    EXPECT_EQ(unwrap_address(UcxReach::network, std::span(good).first(bytes)).code(),
              Code::invalid_argument);
  }
}

}  // namespace
}  // namespace xylem::transport::ucx
