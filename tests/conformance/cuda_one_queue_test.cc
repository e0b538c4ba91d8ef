// SPDX-License-Identifier: Apache-2.0
//
// Streams that share one hardware queue (CUDA_DEVICE_MAX_CONNECTIONS=1). Some programs set this to
// order their kernels. While a stream waits, nothing else runs on the GPU. So calls for which a
// stream would wait are refused, and other calls are carried out.
#include "support/cuda_ranks.h"
#include "support/outcome.h"
#include "support/ranks.h"
#include "support/stream_round.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace xylem::test {
namespace {

constexpr std::uint32_t kRanks = 3;

RankOptions options_for(CudaRanks& devices) {
  RankOptions options{.size = kRanks, .transport = "shm"};
  options.devices = [&](std::uint32_t rank) { return devices.of_rank(rank); };
  return options;
}

void expect_refused(const Status& status) {
  EXPECT_THAT(status, fails_as(Code::unsupported, "CUDA_DEVICE_MAX_CONNECTIONS=1"));
}

TEST(CudaOneQueue, CarriesOutCallsThatDoNotHoldTheirStream) {
  CudaRanks devices(kRanks);
  devices.let_no_stream_wait();
  run_ranks(options_for(devices), [&](Runtime& runtime, MemoryHub&) {
    const std::uint32_t rank = runtime.rank();
    const auto world = runtime.world().after(stream_of(devices, rank));
    Round round(devices, rank, kRanks);
    for (std::uint32_t number = 0; number < 20; ++number) {
      const Work work = round.begin(world, number);
      ASSERT_TRUE(work.wait());
      round.consume();
      ASSERT_EQ(round.wait(), CUDA_SUCCESS);
      ASSERT_TRUE(round.is_right()) << "round " << number;
    }
    EXPECT_TRUE(runtime.world().barrier().wait());
  });
}

TEST(CudaOneQueue, LetsNoStreamWait) {
  CudaRanks devices(kRanks);
  devices.let_no_stream_wait();
  run_ranks(options_for(devices), [&](Runtime& runtime, MemoryHub&) {
    const std::uint32_t rank = runtime.rank();
    const Stream stream = stream_of(devices, rank);
    auto other = value_of(runtime.world().duplicate());
    Round round(devices, rank, kRanks);
    expect_refused(runtime.world().on(stream).all_reduce(round.buffer(), round.buffer()).status());
    Work work;
    if (rank != 0) {
      work = runtime.world().after(stream).all_reduce(round.buffer(), round.buffer());
      expect_refused(work.block(stream));
    }
    EXPECT_TRUE(other.barrier().wait());
    if (rank == 0) {
      work = runtime.world().after(stream).all_reduce(round.buffer(), round.buffer());
    }
    EXPECT_TRUE(work.wait());
    EXPECT_EQ(round.wait(), CUDA_SUCCESS);
  });
}

TEST(CudaOneQueue, MakesNoMesh) {
  CudaRanks devices(kRanks);
  devices.let_no_stream_wait();
  run_ranks(options_for(devices), [&](Runtime& runtime, MemoryHub&) {
    auto is_mesh = value_of(runtime.world().bind(devices.kind(runtime.rank())));
    EXPECT_FALSE(is_mesh);
  });
}

}  // namespace
}  // namespace xylem::test
