// SPDX-License-Identifier: Apache-2.0
//
// Calls of communicators whose devices are bound (Communicator::bind()): their order on streams,
// their capture into graphs, and what happens when they fail.
#include "cuda/gates.h"
#include "support/cuda_ranks.h"
#include "support/ranks.h"
#include "support/stream_round.h"
#include "xylem/base/clock.h"

#include <gtest/gtest.h>

#include <dlfcn.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace xylem::test {
namespace {

using execution::cuda::Gates;
using std::chrono::milliseconds;

constexpr std::uint32_t kRanks = 3;

RankOptions options_for(CudaRanks& devices, std::uint32_t ranks = kRanks) {
  RankOptions options{.size = ranks, .transport = "shm"};
  options.devices = [&](std::uint32_t rank) { return devices.of_rank(rank); };
  return options;
}

/// A communicator of all ranks whose devices are bound.
Communicator bound(const Runtime& runtime, const CudaRanks& devices) {
  const auto world = runtime.world().duplicate();
  EXPECT_TRUE(world) << world.status().to_string();
  const auto is_bound = world->bind(devices.kind(runtime.rank()));
  EXPECT_TRUE(is_bound && *is_bound) << is_bound.status().to_string();
  return *world;
}

/// Runs `body` on ranks whose devices are bound.
template <typename Body>
void run_bound(const Body& body, std::uint32_t ranks = kRanks) {
  CudaRanks devices(ranks);
  run_ranks(options_for(devices, ranks), [&](Runtime& runtime, MemoryHub&) {
    auto world = bound(runtime, devices);
    body(runtime, devices, world);
  });
  // Otherwise nothing would be freed any more.
  EXPECT_FALSE(Gates::are_streams_waiting());
}

/// Functions of the driver that only tests call.
class Graphs {
 public:
  Graphs() {
    const char* const name = std::getenv("CUDA_DRIVER");
    library_ = dlopen(name == nullptr ? "libcuda.so.1" : name, RTLD_NOW);
    find(begin, "cuStreamBeginCapture_v2", "cuStreamBeginCapture");
    find(end, "cuStreamEndCapture");
    find(instantiate, "cuGraphInstantiateWithFlags");
    find(launch, "cuGraphLaunch");
    find(destroy_exec, "cuGraphExecDestroy");
    find(destroy, "cuGraphDestroy");
  }
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;
  ~Graphs() { dlclose(library_); }

  CUresult (*begin)(CUstream, CUstreamCaptureMode) = nullptr;
  CUresult (*end)(CUstream, CUgraph*) = nullptr;
  CUresult (*instantiate)(CUgraphExec*, CUgraph, unsigned long long) = nullptr;
  CUresult (*launch)(CUgraphExec, CUstream) = nullptr;
  CUresult (*destroy_exec)(CUgraphExec) = nullptr;
  CUresult (*destroy)(CUgraph) = nullptr;

 private:
  template <typename Function>
  void find(Function& function, const char* name, const char* other = nullptr) {
    void* found = dlsym(library_, name);
    if (found == nullptr && other != nullptr) found = dlsym(library_, other);
    EXPECT_NE(found, nullptr) << name;
    function = reinterpret_cast<Function>(found);
  }
  void* library_ = nullptr;
};

/// What a stream is given while the object is made, as a graph.
class Graph {
 public:
  template <typename Give>
  Graph(const Driver& driver,
        const CudaMemory& memory,
        Give&& give,
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
      : driver_(driver), memory_(memory) {
    const CurrentContext current(driver_, memory_.context());
    CUgraph graph = nullptr;
    EXPECT_EQ(graphs_.begin(memory_.stream(), mode), CUDA_SUCCESS);
    give();
    EXPECT_EQ(graphs_.end(memory_.stream(), &graph), CUDA_SUCCESS);
    EXPECT_EQ(graphs_.instantiate(&exec_, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(graphs_.destroy(graph), CUDA_SUCCESS);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() { EXPECT_EQ(graphs_.destroy_exec(exec_), CUDA_SUCCESS); }

  void launch() const {
    const CurrentContext current(driver_, memory_.context());
    EXPECT_EQ(graphs_.launch(exec_, memory_.stream()), CUDA_SUCCESS);
  }

 private:
  const Graphs graphs_;
  const Driver& driver_;
  const CudaMemory& memory_;
  CUgraphExec exec_ = nullptr;
};

// Until they have done a call, Xylem gives the driver nothing that may wait for streams.
TEST(CudaMeshStreams, CountAmongThoseThatWait) {
  EXPECT_FALSE(Gates::are_streams_waiting());
  run_bound([](Runtime& runtime, CudaRanks& devices, Communicator& world) {
    const std::uint32_t rank = runtime.rank();
    Round round(devices, rank, kRanks);
    Work work;
    if (rank == 1) {
      work = round.give(world.on(stream_of(devices, rank)), 1);
      EXPECT_TRUE(Gates::are_streams_waiting());
    }
    EXPECT_TRUE(runtime.world().barrier().wait());
    if (rank != 1) work = round.give(world.on(stream_of(devices, rank)), 1);
    EXPECT_TRUE(work.wait());
    EXPECT_TRUE(runtime.world().barrier().wait());
  });
}

TEST(CudaMeshStreams, OrderProducersCallsAndConsumers) {
  run_bound([](Runtime& runtime, CudaRanks& devices, Communicator& world) {
    Round round(devices, world.rank(), kRanks);
    check_rounds(round, world.on(stream_of(devices, world.rank())), 50);
    EXPECT_TRUE(runtime.world().barrier().wait());
  });
}

TEST(CudaMeshStreams, AreToldWhichCallsNeedNoHost) {
  run_bound([](Runtime& runtime, CudaRanks& devices, Communicator& world) {
    const std::uint32_t rank = world.rank();
    const Stream stream = stream_of(devices, rank);
    Round round(devices, rank, kRanks), sent(devices, rank, kRanks), got(devices, rank, kRanks);
    EXPECT_FALSE(Work().runs_on_devices());
    const Work on_mesh = round.begin(world.after(stream), 1);
    EXPECT_TRUE(on_mesh.runs_on_devices());
    EXPECT_TRUE(on_mesh.wait());
    EXPECT_TRUE(on_mesh.runs_on_devices());
    // Calls without a stream, messages, and calls of a communicator that is not bound.
    const Work without_stream = world.barrier();
    EXPECT_FALSE(without_stream.runs_on_devices());
    const Work send = world.after(stream).send(sent.buffer(), (rank + 1) % kRanks, 0);
    const Work receive = world.after(stream).recv(got.buffer(), (rank + kRanks - 1) % kRanks, 0);
    EXPECT_FALSE(send.runs_on_devices() || receive.runs_on_devices());
    const Work unbound = runtime.world().after(stream).all_reduce(round.buffer(), round.buffer());
    EXPECT_FALSE(unbound.runs_on_devices());
    EXPECT_TRUE(wait_all(without_stream, send, receive, unbound));
    EXPECT_FALSE(unbound.runs_on_devices());
    EXPECT_TRUE(runtime.world().barrier().wait());
  });
}

// Many calls are under way at once, on the rank's stream and on the mesh's own, and nobody waits
// for one of them.
TEST(CudaMeshStreams, HoldManyCallsOnSeveralStreams) {
  run_bound([](Runtime& runtime, CudaRanks& devices, Communicator& world) {
    const std::uint32_t rank = runtime.rank();
    const Stream stream = stream_of(devices, rank);
    std::vector<std::unique_ptr<Round>> rounds;
    std::vector<Work> works;
    for (std::uint32_t number = 0; number < 100; ++number) {
      rounds.push_back(std::make_unique<Round>(devices, rank, kRanks));
      Round& round = *rounds.back();
      if (number % 3 == 0) {
        works.push_back(round.give(world.on(stream), number));
      } else {
        round.produce(number);
        works.push_back(world.after(stream).all_reduce(round.buffer(), round.buffer()));
        ASSERT_TRUE(works.back().block(stream));
        round.consume();
      }
    }
    ASSERT_EQ(rounds.back()->wait(), CUDA_SUCCESS);
    for (const auto& round : rounds) EXPECT_TRUE(round->is_right());
    for (const Work& work : works) EXPECT_TRUE(work.wait());
    EXPECT_TRUE(runtime.world().barrier().wait());
  });
}

// The calls of a mesh share flags and scratch, so they follow each other although their streams do
// not.
TEST(CudaMeshStreams, OrderCallsOnDifferentStreams) {
  run_bound([](Runtime& runtime, CudaRanks& devices, Communicator& world) {
    const std::uint32_t rank = runtime.rank();
    const Stream stream = stream_of(devices, rank);
    Round first(devices, rank, kRanks), second(devices, rank, kRanks);
    for (std::uint32_t number = 0; number < 60; ++number) {
      first.produce(number);
      const Work work = world.after(stream).all_reduce(first.buffer(), first.buffer());
      const Work other = second.give(world.on(stream), number + 1000);
      ASSERT_TRUE(work.block(stream));
      first.consume();
      ASSERT_EQ(first.wait(), CUDA_SUCCESS);
      ASSERT_TRUE(first.is_right() && second.is_right()) << "round " << number;
      ASSERT_TRUE(work.wait());
      ASSERT_TRUE(other.wait());
    }
    EXPECT_TRUE(runtime.world().barrier().wait());
  });
}

// A stream waits for a call that is so long ago that the mesh does not know it any more.
TEST(CudaMeshStreams, WaitForCallsOfLongAgo) {
  run_bound([](Runtime& runtime, CudaRanks& devices, Communicator& world) {
    const std::uint32_t rank = runtime.rank();
    const Stream stream = stream_of(devices, rank);
    Round first(devices, rank, kRanks), others(devices, rank, kRanks);
    first.produce(7);
    const Work work = world.after(stream).all_reduce(first.buffer(), first.buffer());
    for (std::uint32_t number = 0; number < 200; ++number) {
      [[maybe_unused]] const Work other =
          world.after(stream).all_reduce(others.buffer(), others.buffer());
    }
    ASSERT_TRUE(work.block(stream));
    first.consume();
    ASSERT_EQ(first.wait(), CUDA_SUCCESS);
    EXPECT_TRUE(first.is_right());
    EXPECT_TRUE(world.barrier().wait());
  });
}

TEST(CudaMeshStreams, TakePartInSeveralCommunicators) {
  CudaRanks devices(kRanks);
  run_ranks(options_for(devices), [&](Runtime& runtime, MemoryHub&) {
    const std::uint32_t rank = runtime.rank();
    const Stream stream = stream_of(devices, rank);
    Round round(devices, rank, kRanks);
    // Their memory is used again.
    for (int i = 0; i < 20; ++i) {
      auto first = bound(runtime, devices), second = bound(runtime, devices);
      for (const auto& world : {first, second, first}) check_rounds(round, world.on(stream), 2);
      ASSERT_TRUE(first.destroy());
      ASSERT_TRUE(second.destroy());
    }
    EXPECT_TRUE(runtime.world().barrier().wait());
  });
}

// What a stream has done is over, although the Works of its calls may not have ended.
TEST(CudaMeshStreams, TellWhenACommunicatorMayBeDestroyed) {
  CudaRanks devices(kRanks);
  run_ranks(options_for(devices), [&](Runtime& runtime, MemoryHub&) {
    const std::uint32_t rank = runtime.rank();
    Round round(devices, rank, kRanks);
    for (std::uint32_t number = 0; number < 10; ++number) {
      auto world = bound(runtime, devices);
      round.produce(number);
      for (int i = 0; i < 5; ++i) {
        [[maybe_unused]] const Work work =
            world.on(stream_of(devices, rank)).all_reduce(round.buffer(), round.buffer());
      }
      ASSERT_EQ(round.wait(), CUDA_SUCCESS);
      const Status destroyed = world.destroy();
      ASSERT_TRUE(destroyed) << destroyed.to_string();
    }
    EXPECT_TRUE(runtime.world().barrier().wait());
  });
}

TEST(CudaMeshStreams, GoOnWhenARankAborts) {
  run_bound([](Runtime& runtime, CudaRanks& devices, Communicator& world) {
    const std::uint32_t rank = runtime.rank();
    const Stream stream = stream_of(devices, rank);
    std::vector<std::unique_ptr<Round>> rounds;
    std::vector<Work> works;
    // Rank 0 does not call, so the streams of the others wait until it aborts.
    for (std::uint32_t number = 0; rank != 0 && number < 20; ++number) {
      rounds.push_back(std::make_unique<Round>(devices, rank, kRanks));
      works.push_back(rank == 1 ? rounds.back()->give(world.on(stream), number)
                                : rounds.back()->begin(world.after(stream), number));
    }
    if (rank != 0) {
      EXPECT_FALSE(works.front().test());
    }
    EXPECT_TRUE(runtime.world().barrier().wait());
    if (rank == 0) {
      EXPECT_TRUE(world.abort("the test"));
    }
    for (const Work& work : works) EXPECT_EQ(work.wait().code(), Code::cancelled);
    if (rank != 0) {
      EXPECT_EQ(rounds.back()->wait(), CUDA_SUCCESS);
      EXPECT_EQ(rounds.back()->give(world.on(stream), 1).wait().code(), Code::cancelled);
      EXPECT_EQ(rounds.back()->wait(), CUDA_SUCCESS);
    }
    EXPECT_TRUE(runtime.world().barrier().wait());
  });
}

// Another communicator's call that is still under way is not in the way.
TEST(CudaMeshStreams, GoOnBesideCallsOfOtherCommunicators) {
  constexpr std::uint32_t kPair = 2;
  CudaRanks devices(kPair);
  run_ranks(options_for(devices, kPair), [&](Runtime& runtime, MemoryHub&) {
    const std::uint32_t rank = runtime.rank();
    const Stream stream = stream_of(devices, rank);
    auto aborted = bound(runtime, devices), other = bound(runtime, devices);
    Round round(devices, rank, kPair), second(devices, rank, kPair);
    Work first, pending;
    if (rank == 0) {
      first = aborted.after(stream).all_reduce(round.buffer(), round.buffer());
      pending = other.after(stream).all_reduce(second.buffer(), second.buffer());
      EXPECT_TRUE(first.block(stream));
    }
    EXPECT_TRUE(runtime.world().barrier().wait());
    if (rank == 1) {
      EXPECT_TRUE(aborted.abort("the test"));
    }
    EXPECT_EQ(round.wait(), CUDA_SUCCESS);
    EXPECT_FALSE(pending.ended() && rank == 0);
    EXPECT_TRUE(runtime.world().barrier().wait());
    if (rank == 1) pending = other.after(stream).all_reduce(second.buffer(), second.buffer());
    EXPECT_TRUE(pending.wait());
    EXPECT_TRUE(runtime.world().barrier().wait());
  });
}

TEST(CudaMeshStreams, GoOnWhenARankDoesNotCallInTime) {
  run_bound([](Runtime& runtime, CudaRanks& devices, Communicator& world) {
    const std::uint32_t rank = runtime.rank();
    if (rank != 0) {
      Round round(devices, rank, kRanks);
      const Work work = round.give(world.on(stream_of(devices, rank)), 1);
      work.set_timeout(milliseconds(500));
      const Status outcome = work.wait();
      EXPECT_EQ(outcome.code(), Code::timed_out);
      EXPECT_NE(outcome.to_string().find("rank 0 did not call it"), std::string::npos)
          << outcome.to_string();
      EXPECT_EQ(round.wait(), CUDA_SUCCESS);
    }
    EXPECT_TRUE(runtime.world().barrier().wait());
  });
}

TEST(CudaMeshStreams, NameBothSidesOfAMismatch) {
  CudaRanks devices(kRanks);
  for (const bool is_of_host : {false, true}) {
    run_ranks(options_for(devices), [&](Runtime& runtime, MemoryHub&) {
      const std::uint32_t rank = runtime.rank();
      auto world = bound(runtime, devices);
      const auto on_stream = world.on(stream_of(devices, rank));
      Round round(devices, rank, kRanks);
      std::uint32_t words[kCount] = {};
      Work work;
      if (rank == 0 && is_of_host) {
        const Buffer there(words, kCount, DataType::uint32);
        work = world.all_reduce(there, there);
      } else if (rank == 0) {
        Buffer half = round.buffer();
        half.count /= 2;
        work = on_stream.all_reduce(half, half);
      } else {
        work = on_stream.all_reduce(round.buffer(), round.buffer());
      }
      const Status outcome = work.wait();
      EXPECT_EQ(outcome.code(), Code::mismatch) << outcome.to_string();
      const std::string text = outcome.to_string();
      EXPECT_NE(text.find("rank 0 calls all_reduce"), std::string::npos) << text;
      EXPECT_NE(text.find(", on a stream"), std::string::npos) << text;
      EXPECT_EQ(round.wait(), CUDA_SUCCESS);
      EXPECT_TRUE(runtime.world().barrier().wait());
    });
  }
}

TEST(CudaMeshStreams, AreCapturedAndLaunchedManyTimes) {
  run_bound([](Runtime& runtime, CudaRanks& devices, Communicator& world) {
    const std::uint32_t rank = runtime.rank();
    const Stream stream = stream_of(devices, rank);
    Round round(devices, rank, kRanks), eager(devices, rank, kRanks);
    std::vector<Work> works;
    const Graph graph(devices.driver(), devices.memory(rank), [&] {
      round.produce(0);
      works.push_back(world.on(stream).all_reduce(round.buffer(), round.buffer()));
      round.consume();
      // A captured call is always in the order of its stream.
      works.push_back(world.after(stream).all_reduce(eager.buffer(), eager.buffer()));
      EXPECT_TRUE(works.back().block(stream));
    });
    // They tell that all ranks have captured the same call. Another stream cannot wait for it.
    for (const Work& work : works) {
      EXPECT_TRUE(work.wait());
      EXPECT_EQ(work.block({nullptr, stream.device}).code(), Code::unsupported);
    }
    for (std::uint32_t number = 0; number < 30; ++number) {
      if (number % 3 == 0) {
        const Work work = eager.give(world.on(stream), number);
        ASSERT_EQ(eager.wait(), CUDA_SUCCESS);
        ASSERT_TRUE(eager.is_right()) << "call " << number;
        ASSERT_TRUE(work.wait());
      }
      round.fill(number);
      graph.launch();
      if (number % 2 == 0) graph.launch();
      ASSERT_EQ(round.wait(), CUDA_SUCCESS);
      ASSERT_TRUE(round.is_right()) << "launch " << number;
    }
    ASSERT_EQ(round.wait(), CUDA_SUCCESS);
    EXPECT_TRUE(runtime.world().barrier().wait());
  });
}

TEST(CudaMeshStreams, GraphsGoOnAfterAnAbort) {
  run_bound([](Runtime& runtime, CudaRanks& devices, Communicator& world) {
    const std::uint32_t rank = runtime.rank();
    Round round(devices, rank, kRanks);
    const Graph graph(devices.driver(), devices.memory(rank), [&] {
      [[maybe_unused]] const Work work = round.give(world.on(stream_of(devices, rank)), 0);
    });
    EXPECT_TRUE(runtime.world().barrier().wait());
    // Rank 0 does not launch it.
    if (rank != 0) graph.launch();
    if (rank == 1) {
      EXPECT_TRUE(world.abort("the test"));
    }
    EXPECT_EQ(round.wait(), CUDA_SUCCESS);
    // All others are cancelled, too.
    EXPECT_EQ(world.barrier().wait().code(), Code::cancelled);
    for (int i = 0; i < 3; ++i) graph.launch();
    EXPECT_EQ(round.wait(), CUDA_SUCCESS);
    EXPECT_TRUE(runtime.world().barrier().wait());
  });
}

// Two streams may have the same handle, here one after the other. Each rank has a device of its
// own: streams of several ranks, more than there are hardware queues, would be in each other's way.
TEST(CudaMeshStreams, AreToldApartAlthoughTheirHandlesAreEqual) {
  constexpr std::uint32_t kPair = 2;
  CudaRanks devices(kPair);
  if (devices.kind(0) == devices.kind(1)) GTEST_SKIP() << "each rank needs a device of its own";
  run_ranks(options_for(devices, kPair), [&](Runtime& runtime, MemoryHub&) {
    const std::uint32_t rank = runtime.rank();
    const Driver& driver = devices.driver();
    const CudaMemory& memory = devices.memory(rank);
    const auto world = bound(runtime, devices);
    for (std::uint32_t number = 0; number < 20; ++number) {
      Round first(devices, rank, kPair), second(devices, rank, kPair);
      std::vector<Work> works;
      for (Round* const round : {&first, &second}) {
        round->fill(number + 100 * static_cast<std::uint32_t>(works.size()));
        const CurrentContext current(driver, memory.context());
        CUstream stream = nullptr;
        ASSERT_EQ(driver.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0),
                  CUDA_SUCCESS);
        round->produce_on(stream);
        works.push_back(
            world.on({stream, devices.kind(rank)}).all_reduce(round->buffer(), round->buffer()));
        // Its work goes on.
        ASSERT_EQ(driver.cuStreamDestroy(stream), CUDA_SUCCESS);
      }
      for (const Work& work : works) ASSERT_TRUE(work.wait());
      for (Round* const round : {&first, &second}) {
        round->consume();
        ASSERT_EQ(round->wait(), CUDA_SUCCESS);
        ASSERT_TRUE(round->is_right()) << number;
      }
    }
    EXPECT_TRUE(runtime.world().barrier().wait());
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

// As torch captures. The job's own calls of the driver, in other threads, do not disturb it.
TEST(CudaMeshStreams, GoOnDuringGlobalCaptures) {
  run_bound([](Runtime& runtime, CudaRanks& devices, Communicator& world) {
    const std::uint32_t rank = runtime.rank();
    const Stream stream = stream_of(devices, rank);
    Round eager(devices, rank, kRanks), captured(devices, rank, kRanks);
    // The others make the call only later, so that the job looks at it during the capture.
    Work work;
    if (rank == 0) work = eager.begin(world.after(stream), 5);
    {
      const Graph graph(
          devices.driver(), devices.memory(rank),
          [&] {
            captured.produce(0);
            captured.consume();
            if (rank == 0) wait_for_question();
          },
          CU_STREAM_CAPTURE_MODE_GLOBAL);
    }
    EXPECT_TRUE(runtime.world().barrier().wait());
    if (rank != 0) work = eager.begin(world.after(stream), 5);
    EXPECT_TRUE(work.wait());
    EXPECT_TRUE(runtime.world().barrier().wait());
  });
}

TEST(CudaMeshStreams, GoOnWhenARankLeaves) {
  run_bound([](Runtime& runtime, CudaRanks& devices, Communicator& world) {
    const std::uint32_t rank = runtime.rank();
    const Stream stream = stream_of(devices, rank);
    if (rank == 0) {
      ASSERT_TRUE(world.destroy());
      return;
    }
    std::vector<std::unique_ptr<Round>> rounds;
    std::vector<Work> works;
    for (std::uint32_t number = 0; number < 20; ++number) {
      rounds.push_back(std::make_unique<Round>(devices, rank, kRanks));
      works.push_back(rounds.back()->give(world.on(stream), number));
    }
    for (const Work& work : works) EXPECT_FALSE(work.wait());
    EXPECT_EQ(rounds.back()->wait(), CUDA_SUCCESS);
  });
}

TEST(CudaMeshStreams, GoOnWhenTheRuntimeEndsAndAfterIt) {
  run_bound([](Runtime& runtime, CudaRanks& devices, Communicator& world) {
    const std::uint32_t rank = runtime.rank();
    const Stream stream = stream_of(devices, rank);
    std::vector<std::unique_ptr<Round>> rounds;
    std::vector<Work> works;
    for (std::uint32_t number = 0; rank != 0 && number < 20; ++number) {
      rounds.push_back(std::make_unique<Round>(devices, rank, kRanks));
      works.push_back(rounds.back()->give(world.on(stream), number));
    }
    EXPECT_TRUE(runtime.world().barrier().wait());
    if (rank == 0) {
      EXPECT_TRUE(world.abort("the test"));
      return;
    }
    for (const Work& work : works) EXPECT_EQ(work.wait().code(), Code::cancelled);
    const auto on_stream = world.on(stream);
    EXPECT_TRUE(runtime.shutdown());
    EXPECT_EQ(rounds.back()->wait(), CUDA_SUCCESS);
    EXPECT_FALSE(rounds.back()->give(on_stream, 1).wait());
    EXPECT_EQ(rounds.back()->wait(), CUDA_SUCCESS);
  });
}

// Also through another handle of a communicator that was destroyed.
TEST(CudaMeshStreams, GetNothingOfADestroyedCommunicator) {
  run_bound([](Runtime& runtime, CudaRanks& devices, Communicator& world) {
    const std::uint32_t rank = runtime.rank();
    const auto on_stream = world.on(stream_of(devices, rank));
    Round round(devices, rank, kRanks);
    EXPECT_TRUE(runtime.world().barrier().wait());
    ASSERT_TRUE(world.destroy());
    EXPECT_TRUE(runtime.world().barrier().wait());
    if (rank == 1) {
      EXPECT_EQ(round.give(on_stream, 1).wait().code(), Code::invalid_argument);
      EXPECT_EQ(round.wait(), CUDA_SUCCESS);
    }
    EXPECT_TRUE(runtime.world().barrier().wait());
  });
}

TEST(CudaMeshStreams, AreNotCapturedWithoutAMesh) {
  CudaRanks devices(1);
  run_ranks(options_for(devices, 1), [&](Runtime& runtime, MemoryHub&) {
    const auto world = runtime.world();
    const Stream stream = stream_of(devices, 0);
    Round round(devices, 0, 1);
    const Graph graph(devices.driver(), devices.memory(0), [&] {
      for (const auto& communicator : {world.on(stream), world.after(stream)}) {
        const Status outcome = communicator.all_reduce(round.buffer(), round.buffer()).wait();
        EXPECT_EQ(outcome.code(), Code::unsupported);
        EXPECT_NE(outcome.to_string().find("captured"), std::string::npos) << outcome.to_string();
      }
      round.consume();
    });
    graph.launch();
    EXPECT_EQ(round.wait(), CUDA_SUCCESS);
  });
}

TEST(CudaMeshStreams, BindOneDeviceToEachRank) {
  run_bound([](Runtime& runtime, CudaRanks& devices, Communicator& world) {
    const std::uint32_t rank = runtime.rank();
    const Memory own = devices.kind(rank), other{MemoryKind::cuda, 1 - own.device};
    const auto again = world.bind(own);
    EXPECT_TRUE(again && *again);
    EXPECT_EQ(world.bind(other).status().code(), Code::invalid_argument);
    EXPECT_EQ(Communicator().bind(own).status().code(), Code::invalid_argument);
    const auto small = world.plan_info("all_reduce", 1, DataType::float32);
    ASSERT_TRUE(small);
    EXPECT_EQ(small->on_stream, "mapped_direct");
    // One rank has no device.
    const auto part = runtime.world().duplicate();
    ASSERT_TRUE(part);
    const auto is_bound = part->bind(rank == 1 ? Memory{} : own);
    ASSERT_TRUE(is_bound) << is_bound.status().to_string();
    EXPECT_FALSE(*is_bound);
    const auto by_engine = part->plan_info("all_reduce", 1, DataType::float32);
    ASSERT_TRUE(by_engine);
    EXPECT_EQ(by_engine->on_stream, "");
    Round round(devices, rank, kRanks);
    EXPECT_TRUE(round.give(part->on(stream_of(devices, rank)), 3).wait());
    EXPECT_EQ(round.wait(), CUDA_SUCCESS);
    EXPECT_TRUE(round.is_right());
    EXPECT_TRUE(runtime.world().barrier().wait());
  });
}

}  // namespace
}  // namespace xylem::test
