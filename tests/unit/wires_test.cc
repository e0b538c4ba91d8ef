// SPDX-License-Identifier: Apache-2.0
//
// Which wire two ranks use: both ends decide alike, whatever one of them lacks.
#include "support/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace xylem::test {
namespace {

using testing::HasSubstr;
using Names = std::vector<std::vector<std::string>>;

/// By rank, the name of the wire to each rank; the ranks also add one number up over them.
Names wires_used(const RankOptions& options) {
  Names names(options.size);
  run_ranks(options, [&](Runtime& runtime, MemoryHub&) {
    std::int64_t one = 1, sum = 0;
    const auto world = runtime.world();
    EXPECT_TRUE(
        world.all_reduce(ConstBuffer(&one, 1, DataType::int64), Buffer(&sum, 1, DataType::int64))
            .wait()
            .is_ok());
    EXPECT_EQ(sum, options.size);
    auto& mine = names[runtime.rank()];
    for (const auto& path : runtime.paths()) mine.push_back(path.transport);
  });
  return names;
}

TEST(Wires, OfOneHostAreNotOfTheNetwork) {
  EXPECT_EQ(wires_used({.size = 3}), (Names{{"self", "loopback", "loopback"},
                                            {"loopback", "self", "loopback"},
                                            {"loopback", "loopback", "self"}}));
}

TEST(Wires, OfTwoHosts) {
  EXPECT_EQ(wires_used({.size = 3, .hosts = {1, 2, 1}}),
            (Names{{"self", "loopback-network", "loopback"},
                   {"loopback-network", "self", "loopback-network"},
                   {"loopback", "loopback-network", "self"}}));
}

TEST(Wires, ToARankThatCannotShareMemoryAreOfTheNetwork) {
  EXPECT_EQ(wires_used({.size = 3, .without_host_wire = 1}),
            (Names{{"self", "loopback-network", "loopback"},
                   {"loopback-network", "self", "loopback-network"},
                   {"loopback", "loopback-network", "self"}}));
}

TEST(Wires, ThatMustShareMemoryAreRefusedWhereOneRankCannot) {
  RankOptions options{.size = 3, .without_host_wire = 1};
  options.environment["XYLEM_TRANSPORT"] = "shm";
  std::mutex mutex;
  std::vector<std::string> refused;
  run_ranks(
      options, [](Runtime&, MemoryHub&) { ADD_FAILURE() << "started"; },
      [&](std::uint32_t, const Status& why) {
        const std::lock_guard lock(mutex);
        refused.push_back(why.to_string());
      });
  EXPECT_EQ(refused.size(), 3U);
  EXPECT_THAT(refused, testing::Contains(HasSubstr("no memory to share")).Times(1));
  EXPECT_THAT(refused, testing::Contains(HasSubstr("rank 1 cannot share memory")).Times(2));
}

void expect_all_refused(const RankOptions& options, Code code, const std::string& says) {
  run_ranks(
      options, [](Runtime&, MemoryHub&) { ADD_FAILURE() << "started"; },
      [&](std::uint32_t, const Status& why) {
        EXPECT_EQ(why.code(), code);
        EXPECT_THAT(why.to_string(), HasSubstr(says));
      });
}

TEST(Wires, ThatMustShareMemoryAreRefusedBetweenHosts) {
  RankOptions options{.size = 2, .hosts = {1, 2}};
  options.environment["XYLEM_TRANSPORT"] = "shm";
  expect_all_refused(options, Code::unsupported, "1 of 2 ranks share the host");
}

TEST(Wires, ThatHaveTooLittleSharedMemoryAreRefused) {
  RankOptions options{.size = 2, .transport = "shm"};
  options.environment["XYLEM_SHARED_MEMORY"] = "4K";
  expect_all_refused(options, Code::exhausted, "4096 bytes of shared memory");
}

}  // namespace
}  // namespace xylem::test
