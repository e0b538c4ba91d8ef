// SPDX-License-Identifier: Apache-2.0
//
// Communicator::bind_later(): devices form a mesh while calls are made. CUDA_DRIVER names the
// driver.
#include "support/cuda_ranks.h"
#include "support/outcome.h"
#include "support/ranks.h"
#include "support/stream_round.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

namespace xylem::test {
namespace {

constexpr std::uint32_t kRanks = 3;

constexpr std::uint64_t kMany = 200;

struct LaterRank {
  Runtime& runtime;
  CudaRanks& devices;
  Communicator world = with_same_memory(runtime);
  std::uint32_t rank = world.rank();
  Memory device = devices.kind(rank);
  Stream stream = stream_of(devices, rank);

  /// Makes all_reduces on the rank's stream until one runs on the mesh, and some more. Returns the
  /// number of the first one on the mesh.
  std::uint64_t first_on_mesh(const Communicator& comm) const {
    std::uint64_t first = 0;
    Round round(devices, rank, comm.size());
    for (std::uint64_t call = 0, more = 10; more > 0; ++call) {
      const Work work = round.give(comm.on(stream), static_cast<std::uint32_t>(call));
      if (work.runs_on_devices()) {
        if (first == 0) first = call;
        --more;
      }
      EXPECT_EQ(work.runs_on_devices(), first > 0);
      EXPECT_TRUE(work.wait());
      EXPECT_TRUE(round.ends_right());
    }
    return first;
  }
  /// The values of all ranks.
  std::vector<std::uint64_t> all(std::uint64_t mine) const {
    const std::vector<std::uint64_t> own{mine};
    std::vector<std::uint64_t> values(kRanks);
    EXPECT_TRUE(runtime.world().all_gather(own, values).wait());
    return values;
  }
  Communicator duplicate() const { return value_of(world.duplicate()); }
};

void run(CudaRanks& devices, const std::function<void(const LaterRank&)>& body) {
  run_ranks(devices.options(), [&](Runtime& runtime, MemoryHub&) {
    const LaterRank self{runtime, devices};
    body(self);
    EXPECT_TRUE(runtime.world().barrier().wait());
  });
}

TEST(BindLater, MovesCallsToTheMeshAtTheSameCallOnAllRanks) {
  CudaRanks devices(kRanks);
  run(devices, [](const LaterRank& self) {
    ASSERT_TRUE(self.world.bind_later(self.device));
    const auto first = self.first_on_mesh(self.world);
    EXPECT_EQ(self.all(first), std::vector<std::uint64_t>(kRanks, first));
    EXPECT_EQ(self.world.binding(), Binding::mesh);
    EXPECT_TRUE(self.world.bind_later(self.device)) << "again";
    EXPECT_THAT(self.world.bind(self.device).status(),
                fails_as(Code::invalid_argument, "by bind_later()"));
  });
}

// A device has 4096 gates, and each call that is not on the mesh needs two.
TEST(BindLater, LetsManyCallsBeUnderWay) {
  constexpr std::size_t kMostUnderWay = 500;
  CudaRanks devices(kRanks);
  run(devices, [&](const LaterRank& self) {
    ASSERT_TRUE(self.world.bind_later(self.device));
    std::byte* const words = devices.memory(self.rank).allocate(kBytes);
    const std::vector<std::uint32_t> ones(kCount, 1);
    devices.memory(self.rank).write(words, ones.data(), kBytes);
    const Buffer buffer(words, kCount, DataType::uint32, self.device);
    std::vector<Work> works;
    do {
      works.push_back(self.world.on(self.stream).all_reduce(buffer, buffer, RedOp::max));
      if (works.size() > kMostUnderWay) {
        ASSERT_TRUE(works[works.size() - kMostUnderWay].wait());
      }
    } while (!works.back().runs_on_devices());
    EXPECT_EQ(self.all(works.size()), std::vector<std::uint64_t>(kRanks, works.size()));
    for (const Work& work : works) EXPECT_TRUE(work.wait());
  });
}

TEST(BindLater, GoesOnWithoutAMesh) {
  CudaRanks devices(kRanks);
  devices.let_no_stream_wait();
  run(devices, [](const LaterRank& self) {
    ASSERT_TRUE(self.world.bind_later(self.device));
    const auto after = self.world.after(self.stream);
    Round round(self.devices, self.rank, kRanks);
    for (std::uint64_t call = 0; call < kMany; ++call) {
      const Work work = after.all_reduce(round.buffer(), round.buffer(), RedOp::max);
      EXPECT_FALSE(work.runs_on_devices());
      EXPECT_TRUE(work.wait());
    }
    EXPECT_EQ(self.world.binding(), Binding::same_memory);
  });
}

TEST(BindLater, MakesFewMeshesSinceTheyOccupyMemory) {
  constexpr std::size_t kMost = 16;
  CudaRanks devices(kRanks);
  run(devices, [&](const LaterRank& self) {
    std::deque<Communicator> comms;
    while (comms.size() < kMost) {
      ASSERT_TRUE(comms.emplace_back(self.duplicate()).bind_later(self.device));
      (void)self.first_on_mesh(comms.back());
    }
    const Communicator& last = comms.emplace_back(self.duplicate());
    ASSERT_TRUE(last.bind_later(self.device));
    const Round round(self.devices, self.rank, kRanks);
    for (std::uint64_t call = 0; call < kMany; ++call) {
      const Work work = last.on(self.stream).all_reduce(round.buffer(), round.buffer());
      EXPECT_FALSE(work.runs_on_devices());
      EXPECT_TRUE(work.wait());
    }
  });
}

TEST(BindLater, EndsWhenARankAborts) {
  CudaRanks devices(kRanks);
  run(devices, [](const LaterRank& self) {
    ASSERT_TRUE(self.world.bind_later(self.device));
    Communicator own = self.world;
    if (self.rank == 0) {
      EXPECT_TRUE(own.abort("the test says so"));
    }
    const auto after = self.world.after(self.stream);
    const Round round(self.devices, self.rank, kRanks);
    Status outcome;
    while (outcome) {
      outcome = after.all_reduce(round.buffer(), round.buffer(), RedOp::max).wait();
    }
    EXPECT_THAT(outcome, fails_as(Code::cancelled, "the test says so"));
  });
}

TEST(BindLater, RefusesWhatItCannotBind) {
  CudaRanks devices(kRanks);
  run(devices, [](const LaterRank& self) {
    ASSERT_TRUE(self.world.bind_later(self.device));
    Memory other = self.device;
    ++other.device;
    EXPECT_THAT(self.world.bind_later(other), fails_as(Code::invalid_argument, "is bound to"));
    EXPECT_THAT(self.runtime.world().bind_later(self.device),
                fails_as(Code::invalid_argument, "begins with the binding same_memory"));
    EXPECT_EQ(Communicator().bind_later(self.device).code(), Code::invalid_argument);
  });
}

}  // namespace
}  // namespace xylem::test
