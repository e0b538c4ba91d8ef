// SPDX-License-Identifier: Apache-2.0
//
// All calls on buffers of a made-up device. The device has up to four queues, and completes work
// later, in an order drawn from a seed. Calls begin behind gates. The CPU cannot access the
// device's memory.
#include "conformance/run_case.h"
#include "support/made_up_devices.h"
#include "support/outcome.h"
#include "support/ranks.h"
#include "support/sanitizer.h"
#include "xylem/collectives/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

namespace xylem::test {
namespace {

RankOptions options_for(std::uint32_t ranks, MadeUpDevices& devices) {
  RankOptions options{.size = ranks, .seed = ranks, .eager_bytes = ranks % 2 == 0 ? 0U : 512U};
  options.environment["XYLEM_SLICE"] = "1K";  // Even small messages have several slices.
  options.environment["XYLEM_WINDOW"] = "3";
  options.devices = [&](std::uint32_t rank) { return devices.of_rank(rank); };
  return options;
}

Buffer floats_on_device(MadeUpDevices& devices, std::uint32_t rank, std::uint64_t count) {
  Buffer buffer(devices.memory(rank).allocate(count * sizeof(float)), count, DataType::float32);
  buffer.memory = kDevice;
  return buffer;
}

// ---- collectives ----

class OnDevice : public testing::TestWithParam<const collectives::Planner*> {
 protected:
  /// If `are_mixed`, odd ranks use host memory.
  static void run(const std::string& transport, bool are_mixed, std::size_t most_cases) {
    const auto& planner = *GetParam();
    for (const std::uint32_t ranks : {1U, 2U, 3U, 5U, 8U}) {
      const auto cases =
          sample(planner.collective, ranks, kHasThreadSanitizer ? most_cases / 3 : most_cases);
      MadeUpDevices devices(ranks);
      RankOptions options = options_for(ranks, devices);
      options.transport = transport;
      options.environment["XYLEM_ALGORITHM"] =
          std::string(name(planner.collective)) + "=" + std::string(planner.name);
      run_ranks(options, [&](const Communicator& world) {
        const BuffersOnDevice there{devices.memory(world.rank()), kDevice};
        const bool is_on_device = !are_mixed || world.rank() % 2 == 0;
        for (const auto& one : cases) {
          const std::string wrong =
              is_on_device ? run_case(world.on(kStream), one, &there) : run_case(world, one);
          ASSERT_EQ(wrong, "") << planner.name << " over " << transport;
        }
        EXPECT_TRUE(world.barrier().wait());
      });
      if (HasFailure()) return;
    }
  }
};

TEST_P(OnDevice, IsRightOverLoopback) { run("loopback", /*are_mixed=*/false, 120); }
TEST_P(OnDevice, IsRightOverSharedMemory) { run("shm", /*are_mixed=*/false, 40); }
TEST_P(OnDevice, IsRightOverTcpBesideRanksOnTheHost) { run("tcp", /*are_mixed=*/true, 12); }
TEST_P(OnDevice, IsRightBesideRanksOnTheHost) { run("shm", /*are_mixed=*/true, 40); }

INSTANTIATE_TEST_SUITE_P(
    Planners, OnDevice, testing::ValuesIn(all_planners()), [](const auto& tested) {
      return std::string(name(tested.param->collective)) + "_" + std::string(tested.param->name);
    });

// ---- messages ----

class MessagesOnDevice : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports, MessagesOnDevice, testing::Values("loopback", "shm", "tcp"));

/// The contents of message `number` from a rank.
std::vector<std::uint8_t> pattern(std::uint32_t rank, std::size_t number, std::size_t bytes) {
  std::vector<std::uint8_t> pattern(bytes);
  std::iota(pattern.begin(), pattern.end(), static_cast<std::uint8_t>(7 * rank + number));
  return pattern;
}

constexpr std::size_t kSizes[] = {0, 1, 500, 4000, 5000, 70'000, 300'000};

/// Some messages are in host memory, and could overtake messages in device memory.
bool is_on_host(std::size_t number) { return number % 3 == 1; }

// All messages have the same tag, so receive i must match message i.
TEST_P(MessagesOnDevice, KeepTheirOrderWhereverTheyAre) {
  constexpr std::uint32_t kRanks = 3;
  MadeUpDevices devices(kRanks);
  RankOptions options = options_for(kRanks, devices);
  options.transport = GetParam();
  run_ranks(options, [&](const Communicator& world) {
    DeviceMemory& memory = devices.memory(world.rank());
    // Messages to the next rank, and of each rank to itself.
    for (const std::uint32_t distance : {1U, 0U}) {
      const std::uint32_t to = (world.rank() + distance) % kRanks;
      const std::uint32_t from = (world.rank() + kRanks - distance) % kRanks;
      std::vector<std::vector<std::uint8_t>> sent, received;
      std::vector<std::byte*> there;
      std::vector<Work> works;
      for (std::size_t i = 0; i < std::size(kSizes); ++i) {
        sent.push_back(pattern(world.rank(), i, kSizes[i]));
        ConstBuffer buffer(sent.back().data(), kSizes[i], DataType::uint8);
        if (!is_on_host(i)) {
          std::byte* const place = memory.allocate(kSizes[i]);
          memory.write(place, sent.back().data(), kSizes[i]);
          buffer = {place, kSizes[i], DataType::uint8};
          buffer.memory = kDevice;
        }
        works.push_back((is_on_host(i) ? world : world.on(kStream)).send(buffer, to, 5));
      }
      for (std::size_t i = 0; i < std::size(kSizes); ++i) {
        // Some receive buffers are longer than their message. The rest of the buffer must not
        // change.
        const std::size_t room = kSizes[i] + i % 2 * 60'000;
        received.push_back(pattern(7, 0, room));
        there.push_back(memory.allocate(room));
        Buffer buffer(received.back().data(), room, DataType::uint8);
        if (!is_on_host(i + 1)) {
          memory.write(there.back(), received.back().data(), room);
          buffer = {there.back(), room, DataType::uint8};
          buffer.memory = kDevice;
        }
        works.push_back((is_on_host(i + 1) ? world : world.on(kStream)).recv(buffer, from, 5));
      }
      for (const Work& work : works) ASSERT_TRUE(work.wait());
      for (std::size_t i = 0; i < std::size(kSizes); ++i) {
        if (!is_on_host(i + 1)) memory.read(received[i].data(), there[i], received[i].size());
        auto expected = pattern(7, 0, received[i].size());
        std::ranges::copy(pattern(from, i, kSizes[i]), expected.begin());
        ASSERT_EQ(received[i], expected) << "message " << i;
        ASSERT_EQ(works[std::size(kSizes) + i].count(), kSizes[i]);
      }
      ASSERT_TRUE(world.barrier().wait());
      memory.clear();
    }
  });
}

TEST_P(MessagesOnDevice, ThatAreTooLongFailAlone) {
  constexpr std::uint32_t kRanks = 2;
  MadeUpDevices devices(kRanks);
  RankOptions options = options_for(kRanks, devices);
  options.transport = GetParam();
  run_ranks(options, [&](const Communicator& world) {
    const auto on_stream = world.on(kStream);
    DeviceMemory& memory = devices.memory(world.rank());
    for (const std::size_t size : {500, 70'000, 3'000'000}) {
      const auto mine = pattern(world.rank(), size, size), before = pattern(7, 0, size);
      std::byte* const from = memory.allocate(size);
      std::byte* const into = memory.allocate(size);
      memory.write(from, mine.data(), size);
      memory.write(into, before.data(), size);
      Buffer output(from, size, DataType::uint8), input(into, size - 1, DataType::uint8);
      output.memory = input.memory = kDevice;
      const Work sent = on_stream.send(output, 1 - world.rank());
      const Work received = on_stream.recv(input, 1 - world.rank());
      ASSERT_EQ(received.wait().code(), Code::mismatch);
      ASSERT_TRUE(received.failed_alone());
      const Status went = sent.wait();
      ASSERT_TRUE(went || sent.failed_alone()) << went.to_string();
      std::vector<std::uint8_t> got(size);
      memory.read(got.data(), into, size);
      ASSERT_EQ(got, before);
      ASSERT_TRUE(on_stream.all_reduce(output, output).wait());
      memory.clear();
    }
  });
}

// ---- errors ----

TEST(Device, WhoseMemoryNobodyServesIsAnError) {
  run_ranks({.size = 1}, [](const Communicator& world) {
    float value = 0;
    Buffer buffer(&value, 1, DataType::float32);
    buffer.memory = kDevice;
    EXPECT_THAT(world.all_reduce(buffer, buffer, RedOp::sum).wait(),
                fails_as(Code::unsupported, "cuda memory"));
  });
}

TEST(Device, InputAndOutputMustBeInTheSameMemory) {
  MadeUpDevices devices(1);
  run_ranks(options_for(1, devices), [&](const Communicator& world) {
    float value = 0;
    Buffer there(devices.memory(0).allocate(sizeof(float)), 1, DataType::float32);
    there.memory = kDevice;
    const ConstBuffer here(&value, 1, DataType::float32);
    EXPECT_THAT(world.all_reduce(here, there, RedOp::sum).wait(),
                fails_as(Code::invalid_argument, "same memory"));
  });
}

TEST(Device, WhoseStreamTheBuffersAreNotOnIsAnError) {
  MadeUpDevices devices(1);
  run_ranks(options_for(1, devices), [&](Runtime& runtime, MemoryHub&) {
    const auto world = runtime.world().on(kStream);
    float value = 0;
    const Buffer here(&value, 1, DataType::float32);
    const std::vector<Status> refused = {world.all_reduce(here, here, RedOp::sum).wait(),
                                         world.send(here, 0).wait(), world.recv(here, 0).wait()};
    EXPECT_THAT(refused, testing::Each(fails_as(Code::invalid_argument, "host memory")));
    const auto elsewhere = runtime.world().on({nullptr, {MemoryKind::cuda, 7}});
    EXPECT_EQ(elsewhere.barrier().wait().code(), Code::unsupported);
    EXPECT_TRUE(world.barrier().wait());
  });
}

TEST(Device, ThatHasAFaultEndsTheCommunicatorOnAllRanks) {
  constexpr std::uint32_t kRanks = 3;
  MadeUpDevices devices(kRanks, /*fault_after=*/40);
  run_ranks(options_for(kRanks, devices), [&](const Communicator& world) {
    constexpr std::uint64_t kCount = 3000;
    Buffer buffer(devices.memory(world.rank()).allocate(kCount * sizeof(float)), kCount,
                  DataType::float32);
    buffer.memory = kDevice;
    Status status;
    for (int i = 0; i < 100 && status; ++i) {
      status = world.on(kStream).all_reduce(buffer, buffer, RedOp::sum).wait();
    }
    EXPECT_THAT(status, testing::AllOf(fails_as(Code::internal, "the made-up device has a fault"),
                                       blames(0U)));
  });
}

// All device work waits behind gates that stay closed. A message in host memory waits behind a
// message that is staged from device memory.
TEST(Device, WhoseWorkIsPendingDoesNotHoldUpAnAbort) {
  constexpr std::uint32_t kRanks = 2;
  MadeUpDevices devices(kRanks);
  devices.keep_gates_closed();
  run_ranks(options_for(kRanks, devices), [&](const Communicator& world) {
    auto part = value_of(world.duplicate());
    const Buffer buffer = floats_on_device(devices, world.rank(), 300'000);
    const std::uint32_t peer = 1 - world.rank();
    float value = 0;
    std::vector<Work> works;
    const auto on_stream = part.on(kStream);
    works.push_back(on_stream.all_reduce(buffer, buffer, RedOp::sum));
    works.push_back(on_stream.send(buffer, peer, 1));
    works.push_back(part.send(ConstBuffer(&value, 1, DataType::float32), peer, 1));
    works.push_back(on_stream.recv(buffer, peer, 1));
    for (const Work& work : works) EXPECT_FALSE(work.test());
    EXPECT_TRUE(world.barrier().wait());
    if (world.rank() == 0) {
      EXPECT_TRUE(part.abort("the test"));
    }
    for (const Work& work : works) EXPECT_EQ(work.wait().code(), Code::cancelled);
    EXPECT_TRUE(world.barrier().wait());
  });
}

// The job ends within seconds all the same. It keeps the memory that the device may still write to.
TEST(Device, ThatNeverFinishesDoesNotHoldUpTheEndOfTheJob) {
  constexpr std::uint32_t kRanks = 2;
  MadeUpDevices devices(kRanks);
  devices.never_finish();
  run_ranks(options_for(kRanks, devices), [&](Runtime& runtime, MemoryHub&) {
    const auto world = runtime.world();
    const auto on_host = value_of(world.split(0, 0));
    const Buffer buffer = floats_on_device(devices, world.rank(), 5000);
    const Work work = world.on(kStream).all_reduce(buffer, buffer, RedOp::sum);
    EXPECT_FALSE(work.test());
    EXPECT_EQ(runtime.shutdown().code(), Code::busy);
    EXPECT_TRUE(on_host.barrier().wait());  // Each rank's shutdown cancels the calls of its peers.
    const Runtime ends = std::move(runtime);
  });
}

}  // namespace
}  // namespace xylem::test
