// SPDX-License-Identifier: Apache-2.0
//
// Streams that share one hardware queue (CUDA_DEVICE_MAX_CONNECTIONS=1), which some applications
// set to order their kernels. A stream that waits then blocks all other work on the GPU. So calls
// for which a stream would have to wait are refused, and other calls are carried out.
#include "support/cuda_ranks.h"
#include "support/outcome.h"
#include "support/ranks.h"
#include "support/stream_round.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace xylem::test {
namespace {

constexpr std::uint32_t kRanks = 3;

class CudaOneQueue : public testing::Test {
 protected:
  void SetUp() override { devices.let_no_stream_wait(); }

  CudaRanks devices{kRanks};
};

void expect_refused(const Status& status) {
  EXPECT_THAT(status, fails_as(Code::unsupported, "CUDA_DEVICE_MAX_CONNECTIONS=1"));
}

TEST_F(CudaOneQueue, CarriesOutCallsThatDoNotHoldTheirStream) {
  run_ranks(devices.options(), [&](const Communicator& world) {
    const auto after = world.after(stream_of(devices, world.rank()));
    Round round(devices, world.rank(), kRanks);
    for (std::uint32_t number = 0; number < 20; ++number) {
      const Work work = round.begin(after, number);
      ASSERT_TRUE(work.wait());
      round.consume();
      ASSERT_EQ(round.wait(), CUDA_SUCCESS);
      ASSERT_TRUE(round.is_right()) << "round " << number;
    }
    EXPECT_TRUE(world.barrier().wait());
  });
}

TEST_F(CudaOneQueue, LetsNoStreamWait) {
  run_ranks(devices.options(), [&](const Communicator& world) {
    const std::uint32_t rank = world.rank();
    const Stream stream = stream_of(devices, rank);
    auto other = value_of(world.duplicate());
    Round round(devices, rank, kRanks);
    expect_refused(world.on(stream).all_reduce(round.buffer(), round.buffer()).status());
    Work work;
    if (rank != 0) {
      work = world.after(stream).all_reduce(round.buffer(), round.buffer());
      expect_refused(work.block(stream));
    }
    EXPECT_TRUE(other.barrier().wait());
    if (rank == 0) {
      work = world.after(stream).all_reduce(round.buffer(), round.buffer());
    }
    EXPECT_TRUE(work.wait());
    EXPECT_EQ(round.wait(), CUDA_SUCCESS);
  });
}

TEST_F(CudaOneQueue, MakesNoMesh) {
  run_ranks(devices.options(), [&](const Communicator& world) {
    EXPECT_EQ(value_of(world.bind(devices.kind(world.rank()))), Binding::same_memory);
  });
}

}  // namespace
}  // namespace xylem::test
