// SPDX-License-Identifier: Apache-2.0
//
// Calls of the bench in a job of one rank. Before the call, the check of results must fail:
// otherwise its success after the call would prove nothing.
#include "tools/src/bench/call.h"
#include "xylem/runtime/runtime.h"

#include <gtest/gtest.h>

#include <string>

namespace xylem::tools {
namespace {

Runtime job_of_one() {
  Options options;
  options.rank = 0;
  options.size = 1;
  auto runtime = Runtime::create(options);
  EXPECT_TRUE(runtime) << runtime.status().to_string();
  return std::move(runtime).value();
}

std::uint64_t elements_of(const Geometry& geometry) {
  std::uint64_t elements = 0;
  for (const Region& region : geometry.result) elements += region.count;
  return elements;
}

TEST(Call, FindsEveryElementWrongUntilItIsMadeAndNoneAfter) {
  Runtime runtime = job_of_one();
  for (const DataType type : {DataType::uint8, DataType::bfloat16, DataType::float64}) {
    BenchOptions options;
    options.type = type;
    for (const OperationTraits& row : operations()) {
      if (row.sizing == Sizing::none || row.least_ranks > 1) continue;
      SCOPED_TRACE(std::string(row.name) + " of " + std::string(name(type)));
      auto call = Call::create(runtime.world(), row.operation, options, Place(), {100000});
      ASSERT_TRUE(call) << call.status().to_string();
      const Geometry& geometry = call->resize({99999});
      EXPECT_TRUE(call->prepare());
      EXPECT_EQ(*call->count_wrong(), elements_of(geometry));
      const Status made = (*call)();
      EXPECT_TRUE(made) << made.to_string();
      EXPECT_EQ(*call->count_wrong(), 0U);
    }
  }
  EXPECT_TRUE(runtime.shutdown());
}

TEST(Call, WithoutChecksNeedsNoRightResult) {
  Runtime runtime = job_of_one();
  BenchOptions options;
  options.check = false;
  auto call = Call::create(runtime.world(), Operation::all_reduce, options, Place(), {4096});
  ASSERT_TRUE(call);
  call->resize({4096});
  EXPECT_TRUE(call->prepare());
  EXPECT_TRUE((*call)());
  EXPECT_TRUE(runtime.shutdown());
}

}  // namespace
}  // namespace xylem::tools
