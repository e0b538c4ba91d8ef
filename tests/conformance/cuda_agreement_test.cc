// SPDX-License-Identifier: Apache-2.0
//
// Communicators to which every rank has bound a device, and whose devices form no mesh
// (Binding::same_memory). CUDA_DRIVER names the driver. Several ranks share a device.
#include "conformance/run_case.h"
#include "support/cuda_ranks.h"
#include "support/outcome.h"
#include "support/ranks.h"
#include "xylem/collectives/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace xylem::test {
namespace {

using Words = std::vector<std::uint32_t>;

TEST(CudaAgreement, IsInherited) {
  CudaRanks devices(3);
  run_ranks(devices.options(), [&](Runtime& runtime, MemoryHub& /*hub*/) {
    const Communicator world = runtime.world();
    const std::uint32_t rank = world.rank();
    const auto before = value_of(world.duplicate());
    EXPECT_EQ(value_of(world.bind(devices.kind(rank))), Binding::mesh);
    EXPECT_EQ(before.binding(), Binding::none);
    EXPECT_EQ(value_of(before.plan_info("all_reduce", 8, DataType::float32)).on_devices, "");
    const auto part = value_of(world.split(rank == 0 ? 0 : 1, 0));
    EXPECT_EQ(part.binding(), Binding::same_memory);
    EXPECT_EQ(value_of(part.companion()).binding(), Binding::same_memory);
    // Ranks do not swap data, which would pass through the host.
    const auto algorithm = value_of(part.plan_info("all_reduce", 8, DataType::float32)).on_devices;
    EXPECT_THAT(algorithm, testing::AllOf(testing::Ne(""), testing::Ne("one_shot"),
                                          testing::Ne("recursive_doubling")));
    EXPECT_EQ(value_of(part.bind(devices.kind(rank))), Binding::mesh);
    // One rank has no device.
    EXPECT_EQ(value_of(before.bind(rank == 1 ? Memory{} : devices.kind(rank))), Binding::none);
    EXPECT_EQ(before.binding(), Binding::none);
    EXPECT_TRUE(world.barrier().wait());
  });
}

TEST(CudaAgreement, BeginsWithTheJobIfAllRanksSay) {
  for (const bool do_all_say : {true, false}) {
    CudaRanks devices(3);
    RankOptions options = devices.options();
    options.device = [&](std::uint32_t rank) -> std::optional<Memory> {
      if (rank == 1 && !do_all_say) return std::nullopt;
      return devices.kind(rank);
    };
    const auto expect_bound = [](Runtime& runtime, MemoryHub& /*hub*/) {
      EXPECT_EQ(runtime.world().binding(), Binding::mesh);
    };
    run_ranks(options, expect_bound, [&](std::uint32_t /*rank*/, const Status& why) {
      EXPECT_FALSE(do_all_say) << why.to_string();
      EXPECT_THAT(why, fails_with("Options::device"));
    });
  }
}

TEST(CudaAgreement, LargeCallsTakeFewMessagesAndPieces) {
  constexpr std::uint32_t kRanks = 4;
  constexpr std::uint64_t kMiB = 64;
  constexpr std::uint64_t kElements = (kMiB << 20) / sizeof(std::uint32_t);
  CudaRanks devices(kRanks, (kMiB + 1) << 20);
  run_ranks(devices.options(), [&](Runtime& runtime, MemoryHub& /*hub*/) {
    const Communicator world = with_same_memory(runtime);
    CudaMemory& memory = devices.memory(world.rank());
    Words words(kElements);
    std::iota(words.begin(), words.end(), world.rank());
    std::byte* const place = memory.allocate(kMiB << 20);
    memory.write(place, words.data(), kMiB << 20);
    const Buffer data(place, kElements, DataType::uint32, devices.kind(world.rank()));
    const Counters before = runtime.counters();
    EXPECT_TRUE(world.all_reduce(data, data).wait());
    const Counters used = runtime.counters() - before;
    // For 256 MiB this means at most 100 of each.
    EXPECT_LE(used.messages, 25);
    EXPECT_LE(used.pieces, 25);
    EXPECT_EQ(used.staged_bytes, 0);
    memory.read(words.data(), place, kMiB << 20);
    for (std::uint64_t i = 0; i < kElements; ++i) ASSERT_EQ(words[i], kRanks * i + 6) << i;
    EXPECT_TRUE(world.barrier().wait());
  });
}

// Slices do not fit into slots of shared memory, and more of them could be in flight than messages
// to a peer can be announced.
TEST(CudaAgreement, ManySlicesOnManyChannelsEnd) {
  constexpr std::uint32_t kRanks = 4;
  constexpr std::uint64_t kElements = (8 << 20) / sizeof(std::uint32_t);
  for (const char* algorithm : {"two_shot", "ring", "double_binary_tree"}) {
    CudaRanks devices(kRanks, kElements * sizeof(std::uint32_t) + (1 << 20));
    run_ranks(devices.options({{"XYLEM_ALGORITHM", algorithm},
                               {"XYLEM_DEVICE_SLICE", "128K"},
                               {"XYLEM_WINDOW", "32"}}),
              [&](Runtime& runtime, MemoryHub& /*hub*/) {
                const Communicator world = with_same_memory(runtime);
                CudaMemory& memory = devices.memory(world.rank());
                Words words(kElements, world.rank() + 1);
                std::byte* const place = memory.allocate(words.size() * sizeof(std::uint32_t));
                const Buffer data(place, kElements, DataType::uint32, devices.kind(world.rank()));
                memory.write(place, words.data(), data.bytes());
                const Counters before = runtime.counters();
                EXPECT_TRUE(world.all_reduce(data, data).wait()) << algorithm;
                EXPECT_EQ((runtime.counters() - before).staged_bytes, 0) << algorithm;
                memory.read(words.data(), place, data.bytes());
                EXPECT_EQ(words, Words(kElements, 1 + 2 + 3 + 4)) << algorithm;
                EXPECT_TRUE(world.barrier().wait());
              });
  }
}

TEST(CudaAgreement, CallsOnTheHostAreCutAsBefore) {
  CudaRanks devices(2);
  run_ranks(devices.options(), [&](Runtime& runtime, MemoryHub& /*hub*/) {
    const auto unbound = value_of(runtime.world().duplicate());
    const auto bound = with_same_memory(runtime);
    Words words(1 << 20, 1);
    const auto messages_of = [&](const Communicator& comm) {
      const Counters before = runtime.counters();
      EXPECT_TRUE(comm.all_reduce(words, words).wait());
      return (runtime.counters() - before).messages;
    };
    EXPECT_EQ(messages_of(unbound), messages_of(bound));
    EXPECT_EQ(words.back(), 4);
    EXPECT_TRUE(bound.barrier().wait());
  });
}

// ---- hosts ----

TEST(CudaAgreement, IsRightOnSeveralHosts) {
  constexpr std::uint32_t kRanks = 5;
  CudaRanks devices(kRanks);
  RankOptions options =
      devices.options({{"XYLEM_DEVICE_SLICE", "2K"}, {"XYLEM_WINDOW", "3"}, {"XYLEM_SLICE", "1K"}});
  options.transport = "auto";
  options.hosts = {0, 0, 1, 1, 1};
  run_ranks(options, [&](Runtime& runtime, MemoryHub& /*hub*/) {
    const Communicator world = runtime.world();
    const Memory kind = devices.kind(world.rank());
    EXPECT_EQ(value_of(world.bind(kind)), Binding::same_memory);
    const BuffersOnDevice there{devices.memory(world.rank()), kind};
    std::set<collectives::Collective> seen;
    const Counters before = runtime.counters();
    for (const auto* planner : all_planners()) {
      if (!seen.insert(planner->collective).second) continue;
      for (const auto& one : sample(planner->collective, kRanks, 16)) {
        ASSERT_EQ(run_case(world, one, &there), "") << name(planner->collective);
      }
    }
    EXPECT_GT((runtime.counters() - before).staged_bytes, 0);
    EXPECT_TRUE(world.barrier().wait());
  });
}

// ---- disagreements ----

/// A rank's buffers, all in one kind of memory.
struct Buffers {
  Buffer input, output;
  std::uint64_t count = 0;  ///< Elements of one part. The buffers have as many parts as ranks.
  std::uint32_t ranks = 0;

  ConstBuffer in(std::uint64_t parts) const {
    return {input.data, parts * count, input.type, kind()};
  }
  Buffer out(std::uint64_t parts) const {
    return {output.data, parts * count, output.type, kind()};
  }
  Memory kind() const { return input.memory; }
  std::vector<std::uint64_t> counts() const { return std::vector<std::uint64_t>(ranks, count); }
};

struct Operation {
  const char* name;
  std::function<Work(const Communicator&, const Buffers&)> call;
};

std::vector<Operation> operations() {
  using C = const Communicator&;
  using B = const Buffers&;
  return {
      {"all_reduce", [](C comm, B b) { return comm.all_reduce(b.in(1), b.out(1)); }},
      {"reduce", [](C comm, B b) { return comm.reduce(b.in(1), b.out(1), RedOp::sum, 0); }},
      {"broadcast", [](C comm, B b) { return comm.broadcast(b.in(1), b.out(1), 0); }},
      {"all_gather", [](C comm, B b) { return comm.all_gather(b.in(1), b.out(b.ranks)); }},
      {"all_gather_v",
       [](C comm, B b) { return comm.all_gather_v(b.in(1), b.out(b.ranks), b.counts()); }},
      {"reduce_scatter", [](C comm, B b) { return comm.reduce_scatter(b.in(b.ranks), b.out(1)); }},
      {"reduce_scatter_v",
       [](C comm, B b) { return comm.reduce_scatter_v(b.in(b.ranks), b.out(1), b.counts()); }},
      {"all_to_all", [](C comm, B b) { return comm.all_to_all(b.in(b.ranks), b.out(b.ranks)); }},
      {"all_to_all_v",
       [](C comm, B b) {
         return comm.all_to_all_v(b.in(b.ranks), b.counts(), b.out(b.ranks), b.counts());
       }},
      {"gather", [](C comm, B b) { return comm.gather(b.in(1), b.out(b.ranks), 0); }},
      {"scatter", [](C comm, B b) { return comm.scatter(b.in(b.ranks), b.out(1), 0); }},
  };
}

class CudaDisagreement : public testing::TestWithParam<Operation> {};

TEST_P(CudaDisagreement, AboutTheKindOfMemoryIsMismatch) {
  constexpr std::uint32_t kRanks = 3;
  for (const std::uint64_t count : {8U, 300'000U}) {
    CudaRanks devices(kRanks);
    run_ranks(
        devices.options({{"XYLEM_TIMEOUT", "20s"}}), [&](Runtime& runtime, MemoryHub& /*hub*/) {
          const Communicator world = runtime.world();
          const std::uint32_t rank = world.rank();
          const auto comm = with_same_memory(runtime);
          const bool is_on_host = rank + 1 == kRanks;
          const Memory kind = is_on_host ? Memory{} : devices.kind(rank);
          Words in(kRanks * count), out(kRanks * count);
          const auto place = [&](Words& words) {
            void* const data = is_on_host ? static_cast<void*>(words.data())
                                          : devices.memory(rank).allocate(words.size() * 4);
            return Buffer(data, words.size(), DataType::uint32, kind);
          };
          Status status = GetParam().call(comm, {place(in), place(out), count, kRanks}).wait();
          // A call that only sends may succeed. Then the rank's next call reports the mismatch.
          if (status) status = comm.barrier().wait();
          EXPECT_THAT(status, fails_as(Code::mismatch, GetParam().name, "in host memory",
                                       "in device memory", "rank 2"));
          EXPECT_TRUE(world.barrier().wait());
        });
  }
}

INSTANTIATE_TEST_SUITE_P(Operations,
                         CudaDisagreement,
                         testing::ValuesIn(operations()),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace xylem::test
