// SPDX-License-Identifier: Apache-2.0
//
// Calls of communicators whose devices are bound (Communicator::bind()): their order on streams,
// their capture into graphs, and what happens when they fail.
#include "cuda/gates.h"
#include "support/cuda_graph.h"
#include "support/cuda_ranks.h"
#include "support/outcome.h"
#include "support/ranks.h"
#include "support/stream_round.h"
#include "xylem/base/clock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

namespace xylem::test {
namespace {

using execution::cuda::Gates;
using std::chrono::milliseconds;

constexpr std::uint32_t kRanks = 3;

/// What one rank of a test uses.
struct MeshRank {
  Runtime& runtime;
  CudaRanks& devices;
  std::uint32_t ranks = kRanks;
  std::uint32_t rank = runtime.rank();
  Stream stream = stream_of(devices, rank);
  Communicator world = bound();  ///< A communicator whose devices are bound.

  /// Makes a communicator of all ranks, and binds its devices.
  Communicator bound() const {
    auto all = value_of(runtime.world().duplicate());
    EXPECT_EQ(value_of(all.bind(devices.kind(rank))), Binding::mesh);
    return all;
  }
  Round round() const { return {devices, rank, ranks}; }
  /// The communicator whose calls are in the order of this rank's stream.
  Communicator on() const { return world.on(stream); }
  /// The communicator whose calls run on the mesh's own stream, after the work that is enqueued on
  /// this rank's stream at the time of the call.
  Communicator after() const { return world.after(stream); }
  Work reduce(const Round& round) const {
    return after().all_reduce(round.buffer(), round.buffer());
  }
  /// A barrier of all ranks.
  void meet() const { EXPECT_TRUE(runtime.world().barrier().wait()); }
};

/// Runs `body` on each rank, with a communicator whose devices are bound.
void run_bound(std::uint32_t ranks,
               const std::function<void(MeshRank& self)>& body,
               std::uint64_t staging_bytes = std::uint64_t{1} << 20) {
  CudaRanks devices(ranks);
  devices.set_mesh_staging(staging_bytes);
  run_ranks(devices.options(), [&](Runtime& runtime, MemoryHub&) {
    MeshRank self{runtime, devices, ranks};
    body(self);
  });
  // While streams wait, Xylem defers freeing driver memory. At the end no stream may wait.
  EXPECT_FALSE(Gates::are_streams_waiting());
}

void run_bound(const std::function<void(MeshRank& self)>& body) { run_bound(kRanks, body); }

// Until they have done a call, Xylem gives the driver nothing that may wait for streams.
TEST(CudaMeshStreams, CountAmongThoseThatWait) {
  EXPECT_FALSE(Gates::are_streams_waiting());
  run_bound([](MeshRank& self) {
    Round round = self.round();
    Work work;
    if (self.rank == 1) {
      work = round.give(self.on(), 1);
      EXPECT_TRUE(Gates::are_streams_waiting());
    }
    self.meet();
    if (self.rank != 1) work = round.give(self.on(), 1);
    EXPECT_TRUE(work.wait());
    self.meet();
  });
}

TEST(CudaMeshStreams, OrderProducersCallsAndConsumers) {
  run_bound([](MeshRank& self) {
    Round round = self.round();
    check_rounds(round, self.on(), 50);
    self.meet();
  });
}

TEST(CudaMeshStreams, AreToldWhichCallsNeedNoHost) {
  run_bound([](MeshRank& self) {
    Round round = self.round(), sent = self.round(), got = self.round();
    EXPECT_FALSE(Work().runs_on_devices());
    const Work on_mesh = round.begin(self.after(), 1);
    EXPECT_TRUE(on_mesh.runs_on_devices());
    EXPECT_TRUE(on_mesh.wait());
    EXPECT_TRUE(on_mesh.runs_on_devices());
    // Calls without a stream, messages, and calls of a communicator that is not bound.
    const Work without_stream = self.world.barrier();
    EXPECT_FALSE(without_stream.runs_on_devices());
    const Work send = self.after().send(sent.buffer(), (self.rank + 1) % kRanks, 0);
    const Work receive = self.after().recv(got.buffer(), (self.rank + kRanks - 1) % kRanks, 0);
    EXPECT_FALSE(send.runs_on_devices() || receive.runs_on_devices());
    const Work unbound =
        self.runtime.world().after(self.stream).all_reduce(round.buffer(), round.buffer());
    EXPECT_FALSE(unbound.runs_on_devices());
    EXPECT_TRUE(wait_all(without_stream, send, receive, unbound));
    EXPECT_FALSE(unbound.runs_on_devices());
    self.meet();
  });
}

// Many calls are under way at once, on the rank's stream and on the mesh's own, and nobody waits
// for one of them.
TEST(CudaMeshStreams, HoldManyCallsOnSeveralStreams) {
  run_bound([](MeshRank& self) {
    std::deque<Round> rounds;
    std::vector<Work> works;
    for (std::uint32_t number = 0; number < 100; ++number) {
      Round& round = rounds.emplace_back(self.devices, self.rank, kRanks);
      if (number % 3 == 0) {
        works.push_back(round.give(self.on(), number));
      } else {
        round.produce(number);
        works.push_back(self.reduce(round));
        ASSERT_TRUE(works.back().block(self.stream));
        round.consume();
      }
    }
    ASSERT_EQ(rounds.back().wait(), CUDA_SUCCESS);
    for (const auto& round : rounds) EXPECT_TRUE(round.is_right());
    for (const Work& work : works) EXPECT_TRUE(work.wait());
    self.meet();
  });
}

// The calls of a mesh share flags and scratch, so they follow each other although their streams do
// not.
TEST(CudaMeshStreams, OrderCallsOnDifferentStreams) {
  run_bound([](MeshRank& self) {
    Round first = self.round(), second = self.round();
    for (std::uint32_t number = 0; number < 60; ++number) {
      first.produce(number);
      const Work work = self.reduce(first);
      const Work other = second.give(self.on(), number + 1000);
      ASSERT_TRUE(work.block(self.stream));
      first.consume();
      ASSERT_EQ(first.wait(), CUDA_SUCCESS);
      ASSERT_TRUE(first.is_right() && second.is_right()) << "round " << number;
      ASSERT_TRUE(work.wait());
      ASSERT_TRUE(other.wait());
    }
    self.meet();
  });
}

// A stream waits for a call that is so long ago that the mesh does not know it any more.
TEST(CudaMeshStreams, WaitForCallsOfLongAgo) {
  run_bound([](MeshRank& self) {
    Round first = self.round(), others = self.round();
    first.produce(7);
    const Work work = self.reduce(first);
    for (std::uint32_t number = 0; number < 200; ++number) {
      [[maybe_unused]] const Work other = self.reduce(others);
    }
    ASSERT_TRUE(work.block(self.stream));
    first.consume();
    ASSERT_TRUE(first.ends_right());
    EXPECT_TRUE(self.world.barrier().wait());
  });
}

TEST(CudaMeshStreams, TakePartInSeveralCommunicators) {
  run_bound([](MeshRank& self) {
    Round round = self.round();
    // Their memory is used again.
    for (int i = 0; i < 20; ++i) {
      auto first = self.bound(), second = self.bound();
      for (const auto& world : {first, second, first})
        check_rounds(round, world.on(self.stream), 2);
      ASSERT_TRUE(first.destroy());
      ASSERT_TRUE(second.destroy());
    }
    self.meet();
  });
}

// What a stream has done is over, although the Works of its calls may not have ended.
TEST(CudaMeshStreams, TellWhenACommunicatorMayBeDestroyed) {
  run_bound([](MeshRank& self) {
    Round round = self.round();
    for (std::uint32_t number = 0; number < 10; ++number) {
      auto world = self.bound();
      round.produce(number);
      for (int i = 0; i < 5; ++i) {
        [[maybe_unused]] const Work work =
            world.on(self.stream).all_reduce(round.buffer(), round.buffer());
      }
      ASSERT_EQ(round.wait(), CUDA_SUCCESS);
      must(world.destroy());
    }
    self.meet();
  });
}

TEST(CudaMeshStreams, GoOnWhenARankAborts) {
  run_bound([](MeshRank& self) {
    std::deque<Round> rounds;
    std::vector<Work> works;
    // Rank 0 does not call, so the streams of the others wait until it aborts.
    for (std::uint32_t number = 0; self.rank != 0 && number < 20; ++number) {
      Round& round = rounds.emplace_back(self.devices, self.rank, kRanks);
      works.push_back(self.rank == 1 ? round.give(self.on(), number)
                                     : round.begin(self.after(), number));
    }
    if (self.rank != 0) {
      EXPECT_FALSE(works.front().test());
    }
    self.meet();
    if (self.rank == 0) {
      EXPECT_TRUE(self.world.abort("the test"));
    }
    for (const Work& work : works) EXPECT_EQ(work.wait().code(), Code::cancelled);
    if (self.rank != 0) {
      EXPECT_EQ(rounds.back().wait(), CUDA_SUCCESS);
      EXPECT_EQ(rounds.back().give(self.on(), 1).wait().code(), Code::cancelled);
      EXPECT_EQ(rounds.back().wait(), CUDA_SUCCESS);
    }
    self.meet();
  });
}

// Another communicator's call that is still under way is not in the way.
TEST(CudaMeshStreams, GoOnBesideCallsOfOtherCommunicators) {
  run_bound(2, [](MeshRank& self) {
    auto aborted = self.bound(), other = self.bound();
    Round round = self.round(), second = self.round();
    Work first, pending;
    if (self.rank == 0) {
      first = aborted.after(self.stream).all_reduce(round.buffer(), round.buffer());
      pending = other.after(self.stream).all_reduce(second.buffer(), second.buffer());
      EXPECT_TRUE(first.block(self.stream));
    }
    self.meet();
    if (self.rank == 1) {
      EXPECT_TRUE(aborted.abort("the test"));
    }
    EXPECT_EQ(round.wait(), CUDA_SUCCESS);
    EXPECT_FALSE(pending.ended() && self.rank == 0);
    self.meet();
    if (self.rank == 1)
      pending = other.after(self.stream).all_reduce(second.buffer(), second.buffer());
    EXPECT_TRUE(pending.wait());
    self.meet();
  });
}

TEST(CudaMeshStreams, GoOnWhenARankDoesNotCallInTime) {
  run_bound([](MeshRank& self) {
    if (self.rank != 0) {
      Round round = self.round();
      const Work work = round.give(self.on(), 1);
      work.set_timeout(milliseconds(500));
      EXPECT_THAT(work.wait(), fails_as(Code::timed_out, "rank 0 did not call it"));
      EXPECT_EQ(round.wait(), CUDA_SUCCESS);
    }
    self.meet();
  });
}

TEST(CudaMeshStreams, NameBothSidesOfAMismatch) {
  for (const bool is_of_host : {false, true}) {
    run_bound([&](MeshRank& self) {
      Round round = self.round();
      std::uint32_t words[kCount] = {};
      Work work;
      if (self.rank == 0 && is_of_host) {
        const Buffer there(words, kCount, DataType::uint32);
        work = self.world.all_reduce(there, there);
      } else if (self.rank == 0) {
        Buffer half = round.buffer();
        half.count /= 2;
        work = self.on().all_reduce(half, half);
      } else {
        work = self.on().all_reduce(round.buffer(), round.buffer());
      }
      const Status outcome = work.wait();
      EXPECT_THAT(outcome, fails_as(Code::mismatch, "rank 0 calls all_reduce", ", on a stream"));
      EXPECT_EQ(round.wait(), CUDA_SUCCESS);
      self.meet();
    });
  }
}

// Only the two ranks of a part know its size, so their devices compare it. With 300 elements, rank
// 0 takes part in more rounds than rank 1.
TEST(CudaMeshStreams, AreToldOfPartsWhoseSizesDiffer) {
  for (const std::uint64_t stated : {0U, 5U, 300U}) {
    const auto body = [&](MeshRank& self) {
      const std::vector<std::uint64_t> sent(self.ranks, 7);
      std::vector<std::uint64_t> received(self.ranks, 7);
      if (self.rank == 0) received[1] = stated;
      const Round round = self.round();
      Buffer input = round.buffer(), output = round.buffer();
      input.count = 7 * self.ranks;
      output.data = static_cast<std::uint32_t*>(output.data) + input.count;
      output.count = std::accumulate(received.begin(), received.end(), std::uint64_t{0});
      const Status outcome = self.on().all_to_all_v(input, sent, output, received).wait();
      // The call may have ended on the others.
      if (self.rank == 0 || !outcome) {
        EXPECT_THAT(outcome, fails_as(Code::mismatch, "rank 0 cannot go on",
                                      "rank 1 of the communicator states another number"));
      }
      self.meet();
    };
    run_bound(kRanks, body, 1 << 10);
  }
}

TEST(CudaMeshStreams, AreCapturedAndLaunchedManyTimes) {
  run_bound([](MeshRank& self) {
    Round round = self.round(), eager = self.round();
    std::vector<Work> works;
    const CudaGraph graph(self.devices.driver(), self.devices.memory(self.rank), [&] {
      round.produce(0);
      works.push_back(self.on().all_reduce(round.buffer(), round.buffer()));
      round.consume();
      // A captured call is always in the order of its stream.
      works.push_back(self.reduce(eager));
      EXPECT_TRUE(works.back().block(self.stream));
    });
    // They tell that all ranks have captured the same call. Another stream cannot wait for it.
    for (const Work& work : works) {
      EXPECT_TRUE(work.wait());
      EXPECT_EQ(work.block({nullptr, self.stream.device}).code(), Code::unsupported);
    }
    for (std::uint32_t number = 0; number < 30; ++number) {
      if (number % 3 == 0) {
        const Work work = eager.give(self.on(), number);
        ASSERT_TRUE(eager.ends_right()) << "call " << number;
        ASSERT_TRUE(work.wait());
      }
      round.fill(number);
      graph.launch();
      if (number % 2 == 0) graph.launch();
      ASSERT_TRUE(round.ends_right()) << "launch " << number;
    }
    ASSERT_EQ(round.wait(), CUDA_SUCCESS);
    self.meet();
  });
}

TEST(CudaMeshStreams, GraphsGoOnAfterAnAbort) {
  run_bound([](MeshRank& self) {
    Round round = self.round();
    const CudaGraph graph(self.devices.driver(), self.devices.memory(self.rank),
                          [&] { [[maybe_unused]] const Work work = round.give(self.on(), 0); });
    self.meet();
    // Rank 0 does not launch it.
    if (self.rank != 0) graph.launch();
    if (self.rank == 1) {
      EXPECT_TRUE(self.world.abort("the test"));
    }
    EXPECT_EQ(round.wait(), CUDA_SUCCESS);
    // All others are cancelled, too.
    EXPECT_EQ(self.world.barrier().wait().code(), Code::cancelled);
    for (int i = 0; i < 3; ++i) graph.launch();
    EXPECT_EQ(round.wait(), CUDA_SUCCESS);
    self.meet();
  });
}

// Two streams may have the same handle, here one after the other. Each rank has a device of its
// own: streams of several ranks, more than there are hardware queues, would be in each other's way.
TEST(CudaMeshStreams, AreToldApartAlthoughTheirHandlesAreEqual) {
  const CudaRanks pair(2);
  if (pair.kind(0) == pair.kind(1)) GTEST_SKIP() << "each rank needs a device of its own";
  run_bound(2, [](MeshRank& self) {
    const Driver& driver = self.devices.driver();
    for (std::uint32_t number = 0; number < 20; ++number) {
      Round first = self.round(), second = self.round();
      std::vector<Work> works;
      for (Round* const round : {&first, &second}) {
        round->fill(number + 100 * static_cast<std::uint32_t>(works.size()));
        const CurrentContext current(driver, self.devices.memory(self.rank).context());
        CUstream stream = nullptr;
        ASSERT_EQ(driver.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0),
                  CUDA_SUCCESS);
        round->produce_on(stream);
        works.push_back(self.world.on({stream, self.stream.device})
                            .all_reduce(round->buffer(), round->buffer()));
        // Its work goes on.
        ASSERT_EQ(driver.cuStreamDestroy(stream), CUDA_SUCCESS);
      }
      for (const Work& work : works) ASSERT_TRUE(work.wait());
      for (Round* const round : {&first, &second}) {
        round->consume();
        ASSERT_TRUE(round->ends_right()) << number;
      }
    }
    self.meet();
  });
}

/// Waits until the job has asked the driver for the state of a stream. A GPU's driver does not
/// tell.
void wait_for_question() {
  if (!is_stand_in()) return;
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  const unsigned long before = calls_of_stand_in("cuStreamQuery");
  while (calls_of_stand_in("cuStreamQuery") == before) {
    ASSERT_FALSE(deadline.passed()) << "nobody looks at the call";
    std::this_thread::yield();
  }
}

TEST(CudaMeshStreams, KeepTheirOrderOnSeveralStreamsOfACapture) {
  run_bound([](MeshRank& self) {
    const Driver& driver = self.devices.driver();
    const CudaMemory& memory = self.devices.memory(self.rank);
    const CudaMemory side(self.devices.shared_driver(), self.devices.kind(self.rank).device, 1);
    Round first = self.round(), second = self.round();
    CUevent forked = nullptr, joined = nullptr;
    {
      const CurrentContext current(driver, memory.context());
      EXPECT_EQ(driver.cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
      EXPECT_EQ(driver.cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    }
    const Stream aside{side.stream(), self.devices.kind(self.rank)};
    const CudaGraph graph(driver, memory, [&] {
      first.produce(0);
      second.produce(0);
      EXPECT_EQ(driver.cuEventRecord(forked, memory.stream()), CUDA_SUCCESS);
      EXPECT_EQ(driver.cuStreamWaitEvent(side.stream(), forked, 0), CUDA_SUCCESS);
      // Nothing but Xylem orders these two calls.
      const Communicator on_side = self.world.on(aside);
      EXPECT_TRUE(on_side.all_reduce(first.buffer(), first.buffer()).wait());
      EXPECT_TRUE(self.on().all_reduce(second.buffer(), second.buffer()).wait());
      EXPECT_EQ(driver.cuEventRecord(joined, side.stream()), CUDA_SUCCESS);
      EXPECT_EQ(driver.cuStreamWaitEvent(memory.stream(), joined, 0), CUDA_SUCCESS);
      first.consume();
      second.consume();
    });
    for (std::uint32_t number = 0; number < 20; ++number) {
      first.fill(number);
      second.fill(number);
      graph.launch();
      EXPECT_TRUE(first.ends_right()) << number;
      EXPECT_TRUE(second.is_right()) << number;
    }
    self.meet();
    const CurrentContext current(driver, memory.context());
    for (const CUevent event : {forked, joined}) driver.cuEventDestroy(event);
  });
}

// As torch captures. The job's own calls of the driver, in other threads, do not disturb it.
TEST(CudaMeshStreams, GoOnDuringGlobalCaptures) {
  run_bound([](MeshRank& self) {
    Round eager = self.round(), captured = self.round();
    // The other ranks make this call only after the capture. So it is pending during the capture,
    // and the job queries the driver about its stream.
    Work work;
    if (self.rank == 0) work = eager.begin(self.after(), 5);
    {
      const CudaGraph graph(
          self.devices.driver(), self.devices.memory(self.rank),
          [&] {
            captured.produce(0);
            captured.consume();
            if (self.rank == 0) wait_for_question();
          },
          CU_STREAM_CAPTURE_MODE_GLOBAL);
    }
    self.meet();
    if (self.rank != 0) work = eager.begin(self.after(), 5);
    EXPECT_TRUE(work.wait());
    self.meet();
  });
}

TEST(CudaMeshStreams, GoOnWhenARankLeaves) {
  run_bound([](MeshRank& self) {
    if (self.rank == 0) {
      ASSERT_TRUE(self.world.destroy());
      return;
    }
    std::deque<Round> rounds;
    std::vector<Work> works;
    for (std::uint32_t number = 0; number < 20; ++number) {
      works.push_back(rounds.emplace_back(self.devices, self.rank, kRanks).give(self.on(), number));
    }
    for (const Work& work : works) EXPECT_FALSE(work.wait());
    EXPECT_EQ(rounds.back().wait(), CUDA_SUCCESS);
  });
}

TEST(CudaMeshStreams, GoOnWhenTheRuntimeEndsAndAfterIt) {
  run_bound([](MeshRank& self) {
    std::deque<Round> rounds;
    std::vector<Work> works;
    for (std::uint32_t number = 0; self.rank != 0 && number < 20; ++number) {
      works.push_back(rounds.emplace_back(self.devices, self.rank, kRanks).give(self.on(), number));
    }
    self.meet();
    if (self.rank == 0) {
      EXPECT_TRUE(self.world.abort("the test"));
      return;
    }
    for (const Work& work : works) EXPECT_EQ(work.wait().code(), Code::cancelled);
    const auto on_stream = self.on();
    EXPECT_TRUE(self.runtime.shutdown());
    EXPECT_EQ(rounds.back().wait(), CUDA_SUCCESS);
    EXPECT_FALSE(rounds.back().give(on_stream, 1).wait());
    EXPECT_EQ(rounds.back().wait(), CUDA_SUCCESS);
  });
}

// Also through another handle of a communicator that was destroyed.
TEST(CudaMeshStreams, GetNothingOfADestroyedCommunicator) {
  run_bound([](MeshRank& self) {
    const auto on_stream = self.on();
    Round round = self.round();
    self.meet();
    ASSERT_TRUE(self.world.destroy());
    self.meet();
    if (self.rank == 1) {
      EXPECT_EQ(round.give(on_stream, 1).wait().code(), Code::invalid_argument);
      EXPECT_EQ(round.wait(), CUDA_SUCCESS);
    }
    self.meet();
  });
}

TEST(CudaMeshStreams, AreNotCapturedWithoutAMesh) {
  CudaRanks devices(1);
  run_ranks(devices.options(), [&](const Communicator& world) {
    const Stream stream = stream_of(devices, 0);
    Round round(devices, 0, 1);
    const CudaGraph graph(devices.driver(), devices.memory(0), [&] {
      for (const auto& communicator : {world.on(stream), world.after(stream)}) {
        EXPECT_THAT(communicator.all_reduce(round.buffer(), round.buffer()).wait(),
                    fails_as(Code::unsupported, "captured"));
      }
      round.consume();
    });
    graph.launch();
    EXPECT_EQ(round.wait(), CUDA_SUCCESS);
  });
}

TEST(CudaMeshStreams, BindOneDeviceToEachRank) {
  run_bound([](MeshRank& self) {
    const Memory own = self.devices.kind(self.rank), other{MemoryKind::cuda, 1 - own.device};
    EXPECT_EQ(value_of(self.world.bind(own)), Binding::mesh);
    EXPECT_EQ(self.world.bind(other).status().code(), Code::invalid_argument);
    EXPECT_EQ(Communicator().bind(own).status().code(), Code::invalid_argument);
    EXPECT_EQ(value_of(self.world.plan_info("all_reduce", 1, DataType::float32)).on_stream,
              "mapped");
    // One rank has no device.
    const auto part = value_of(self.runtime.world().duplicate());
    EXPECT_EQ(value_of(part.bind(self.rank == 1 ? Memory{} : own)), Binding::none);
    EXPECT_EQ(value_of(part.plan_info("all_reduce", 1, DataType::float32)).on_stream, "");
    Round round = self.round();
    EXPECT_TRUE(round.give(part.on(self.stream), 3).wait());
    EXPECT_TRUE(round.ends_right());
    self.meet();
  });
}

// ---- more streams that wait than hardware queues ----

constexpr std::uint32_t kMost = 4;  ///< The most streams of a rank that may wait.

/// Two ranks, each with a device, and many communicators whose devices are bound. Their calls of
/// after() run on as many streams.
class ManyMeshes {
 public:
  static constexpr std::uint32_t kMeshes = 20;

  explicit ManyMeshes(MeshRank& self) : self_(self) {
    for (std::uint32_t i = 0; i < kMeshes; ++i) {
      meshes_.push_back(self.bound());
      rounds_.emplace_back(self.devices, self.rank, self.ranks);
    }
    self.meet();
  }

  void call_all() {
    for (std::uint32_t i = 0; i < kMeshes; ++i) {
      works_.push_back(rounds_[i].begin(meshes_[i].after(self_.stream), i));
      ++called_;
    }
  }
  std::uint32_t called() const noexcept { return called_; }
  void abort_all() {
    for (Communicator& mesh : meshes_) EXPECT_TRUE(mesh.abort("the test says so"));
  }
  const std::vector<Work>& works() const noexcept { return works_; }

 private:
  MeshRank& self_;
  std::vector<Communicator> meshes_;
  std::deque<Round> rounds_;
  std::vector<Work> works_;
  std::atomic<std::uint32_t> called_{0};
};

void run_many(std::uint32_t most_waiting, const std::function<void(MeshRank&, ManyMeshes&)>& body) {
  constexpr std::uint32_t kTwo = 2;
  CudaRanks devices(kTwo);
  devices.set_mesh_staging(1 << 10);
  devices.let_streams_wait(most_waiting);
  run_ranks(devices.options(), [&](Runtime& runtime, MemoryHub&) {
    MeshRank self{runtime, devices, kTwo};
    ManyMeshes meshes(self);
    body(self, meshes);
    self.meet();
  });
}

/// Whether work on a further stream of the rank runs, while other streams wait.
bool does_other_work_run(const MeshRank& self, milliseconds patience) {
  CudaMemory& memory = self.devices.memory(self.rank);
  const execution::cuda::Driver& driver = self.devices.driver();
  const CurrentContext current(driver, memory.context());
  const auto place = reinterpret_cast<CUdeviceptr>(memory.allocate(2 * kBytes));
  EXPECT_EQ(driver.cuMemcpyAsync(place + kBytes, place, kBytes, memory.stream()), CUDA_SUCCESS);
  const Deadline end = Deadline::after(patience);
  const auto is_done = [&] { return driver.cuStreamQuery(memory.stream()) == CUDA_SUCCESS; };
  while (!end.passed() && !is_done()) std::this_thread::yield();
  return is_done();
}

TEST(CudaMeshQueues, AreLeftForOtherWork) {
  run_many(kMost, [](MeshRank& self, ManyMeshes& meshes) {
    std::int32_t word = 0;
    const Buffer message(&word, 1, DataType::int32);
    if (self.rank == 1) {
      EXPECT_TRUE(self.world.recv(message, 0).wait());
      meshes.call_all();
    } else {
      std::thread caller([&] { report_exceptions([&] { meshes.call_all(); }); });
      while (meshes.called() < kMost) std::this_thread::yield();
      EXPECT_TRUE(does_other_work_run(self, std::chrono::seconds(20)));
      EXPECT_EQ(meshes.called(), kMost);
      EXPECT_TRUE(self.world.send(message, 1).wait());
      caller.join();
    }
    for (const Work& work : meshes.works()) EXPECT_TRUE(work.wait());
  });
}

TEST(CudaMeshQueues, StandStillWithoutTheLimit) {
  run_many(ManyMeshes::kMeshes, [](MeshRank& self, ManyMeshes& meshes) {
    // A GPU may have more queues. Ranks that share a device would stand still for ever.
    if (!is_stand_in() || self.devices.devices() < 2) return;
    std::int32_t word = 0;
    const Buffer message(&word, 1, DataType::int32);
    if (self.rank == 1) {
      EXPECT_TRUE(self.world.recv(message, 0).wait());
    }
    meshes.call_all();
    if (self.rank == 0) {
      EXPECT_FALSE(does_other_work_run(self, milliseconds(300)));
      EXPECT_TRUE(self.world.send(message, 1).wait());
    }
    for (const Work& work : meshes.works()) EXPECT_TRUE(work.wait());
  });
}

TEST(CudaMeshQueues, AreFreeAfterAnAbort) {
  run_many(kMost, [](MeshRank& self, ManyMeshes& meshes) {
    if (self.rank == 1) return;  // Rank 0's calls wait for rank 1, until they are aborted.
    std::thread caller([&] { report_exceptions([&] { meshes.call_all(); }); });
    while (meshes.called() < kMost) std::this_thread::yield();
    meshes.abort_all();
    caller.join();
    for (const Work& work : meshes.works()) EXPECT_EQ(work.wait().code(), Code::cancelled);
    EXPECT_TRUE(does_other_work_run(self, std::chrono::seconds(20)));
  });
}

}  // namespace
}  // namespace xylem::test
