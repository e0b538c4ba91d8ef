// SPDX-License-Identifier: Apache-2.0
//
// The stand-in for the CUDA driver: stream capture and graphs.
#include "unit/fake_cuda_fixture.h"

#include <atomic>
#include <functional>
#include <thread>

namespace xylem::fake_cuda::test {
namespace {

class FakeCudaGraph : public FakeCuda {
 protected:
  void begin(CUstream stream, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) const {
    must(CU(cuStreamBeginCapture)(stream, mode));
  }
  CUgraph end(CUstream stream) const {
    CUgraph graph = nullptr;
    must(CU(cuStreamEndCapture)(stream, &graph));
    EXPECT_NE(graph, nullptr);
    return graph;
  }
  void end_in_vain(CUstream stream, CUresult expected) const {
    auto* graph = reinterpret_cast<CUgraph>(8);
    EXPECT_EQ(CU(cuStreamEndCapture)(stream, &graph), expected);
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
  }
  /// Makes an executable graph. Destroys `graph`, which the executable graph does not need.
  CUgraphExec instantiate(CUgraph graph) const {
    CUgraphExec exec = nullptr;
    must(CU(cuGraphInstantiate)(&exec, graph, 0));
    must(CU(cuGraphDestroy)(graph));
    return exec;
  }
  void launch_graph(CUgraphExec exec, CUstream stream) const {
    must(CU(cuGraphLaunch)(exec, stream));
  }
  CUstreamCaptureStatus status_of(CUstream stream) const {
    auto status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    must(CU(cuStreamIsCapturing)(stream, &status));
    return status;
  }
  void fill(CUdeviceptr address, std::uint32_t value, std::size_t count, CUstream stream) const {
    must(CU(cuMemsetD32Async)(address, value, count, stream));
  }
};

using FakeCudaCapture = FakeCudaGraph;

TEST_F(FakeCudaGraph, RunsWhatWasCapturedAtEachLaunchAndNotBefore) {
  start();
  std::uint32_t* in = allocate_host(16);
  std::uint32_t* out = allocate_host(16);
  const CUdeviceptr memory = allocate(64);
  const CUdeviceptr sum = allocate(64);
  const CUdeviceptr word = allocate(4);
  fill(word, 0, 1, nullptr);
  fill(memory, 1, 16, nullptr);
  must(CU(cuCtxSynchronize)());
  const CUfunction add = kernel("test_add");
  const CUstream stream = make_stream();
  std::atomic<int> host_calls{0};
  const auto count = [](void* data) { ++*static_cast<std::atomic<int>*>(data); };

  begin(stream);
  fill(sum, 100, 16, stream);
  must(CU(cuMemcpyAsync)(memory, on_device(in), 64, stream));
  must(launch(add, sum, memory, 16, stream));
  CUstreamBatchMemOpParams batch[2] = {};
  batch[0].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, word, {5}, 0, 0};
  batch[1].waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_32, word, {5}, CU_STREAM_WAIT_VALUE_EQ, 0};
  must(CU(cuStreamBatchMemOp)(stream, 2, batch, 0));
  must(CU(cuLaunchHostFunc)(stream, count, &host_calls));
  must(CU(cuMemcpyAsync)(on_device(out), sum, 64, stream));
  EXPECT_EQ(status_of(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  const CUgraph graph = end(stream);
  EXPECT_EQ(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
  std::size_t nodes = 0;
  must(CU(cuGraphGetNodes)(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 6U);
  const CUgraphExec exec = instantiate(graph);

  must(CU(cuCtxSynchronize)());
  EXPECT_EQ(host_calls, 0);
  EXPECT_EQ(view(memory)[0], 1U);
  EXPECT_EQ(view(word)[0], 0U);
  for (std::uint32_t round = 1; round <= 3; ++round) {
    for (std::uint32_t i = 0; i < 16; ++i) in[i] = round * i;
    launch_graph(exec, stream);
    must(CU(cuStreamSynchronize)(stream));
    for (std::uint32_t i = 0; i < 16; ++i) EXPECT_EQ(out[i], 100 + round * i);
    EXPECT_EQ(host_calls, static_cast<int>(round));
  }
  EXPECT_EQ(view(word)[0], 5U);
  must(CU(cuGraphExecDestroy)(exec));
  EXPECT_EQ(live("graph"), 0U);
  EXPECT_EQ(misuses(), 0U) << last_misuse();
}

// Two streams each write one half of the memory. The first stream adds the two halves.
TEST_F(FakeCudaGraph, HasTheBranchesThatEventsMadeForEverySeed) {
  for (int seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    start({{"FAKE_CUDA_SEED", std::to_string(seed)}, {"FAKE_CUDA_DELAY_US", "300"}});
    const CUdeviceptr memory = allocate(1024);
    const CUstream first = make_stream(), second = make_stream();
    const CUfunction add = kernel("test_add");
    begin(first);
    fill(memory, 1, 256, first);
    order(first, second);
    EXPECT_EQ(status_of(second), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    must(launch(add, memory, memory, 128, second));
    must(launch(add, memory + 512, memory + 512, 128, first));
    must(launch(add, memory + 512, memory + 512, 128, first));
    order(second, first);
    must(launch(add, memory, memory + 512, 128, first));
    const CUgraphExec exec = instantiate(end(first));
    EXPECT_EQ(status_of(second), CU_STREAM_CAPTURE_STATUS_NONE);
    fill(memory, 9, 256, second);
    order(second, first);
    launch_graph(exec, first);
    // In the stream of the launch, after the graph.
    must(launch(add, memory + 512, memory, 128, first));
    must(CU(cuStreamSynchronize)(first));
    for (std::size_t i = 0; i < 128; ++i) {
      ASSERT_EQ(view(memory)[i], 6U);
      ASSERT_EQ(view(memory + 512)[i], 10U);
    }
    EXPECT_EQ(misuses(), 0U) << last_misuse();
  }
}

TEST_F(FakeCudaGraph, HasBranchesThatRunBesideEachOther) {
  start();
  const CUdeviceptr words = allocate(8);
  const CUstream first = make_stream(), second = make_stream();
  begin(first);
  fill(words, 0, 2, first);
  order(first, second);
  must(CU(cuStreamWaitValue32)(first, words, 1, CU_STREAM_WAIT_VALUE_EQ));
  must(CU(cuStreamWriteValue32)(first, words + 4, 1, 0));
  must(CU(cuStreamWriteValue32)(second, words, 1, 0));
  must(CU(cuStreamWaitValue32)(second, words + 4, 1, CU_STREAM_WAIT_VALUE_EQ));
  order(second, first);
  const CUgraphExec exec = instantiate(end(first));
  launch_graph(exec, first);
  EXPECT_EQ(query_for(first, std::chrono::milliseconds(20000)), CUDA_SUCCESS);
}

TEST_F(FakeCudaGraph, StartsAfterWhatItsStreamWasGivenBefore) {
  for (std::uint32_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    start({{"FAKE_CUDA_SEED", std::to_string(seed)}, {"FAKE_CUDA_DELAY_US", "300"}});
    const CUdeviceptr memory = allocate(64);
    std::uint32_t* out = allocate_host(1);
    const CUstream first = make_stream(), second = make_stream();
    begin(first);
    // Only the second stream adds a node.
    order(first, second);
    must(CU(cuMemcpyAsync)(on_device(out), memory, 4, second));
    order(second, first);
    const CUgraphExec exec = instantiate(end(first));
    fill(memory, seed, 16, first);
    launch_graph(exec, first);
    must(CU(cuStreamSynchronize)(first));
    EXPECT_EQ(*out, seed);
  }
}

// All launches use the same memory for an intermediate result.
TEST_F(FakeCudaGraph, RunsItsLaunchesOneAfterTheOtherAlsoInTwoStreams) {
  start({{"FAKE_CUDA_DELAY_US", "200"}});
  const CUdeviceptr between = allocate(4096);
  const CUdeviceptr sum = allocate(4096);
  const CUstream first = make_stream(), second = make_stream();
  fill(sum, 0, 1024, first);
  must(CU(cuStreamSynchronize)(first));
  const CUfunction add = kernel("test_add");
  begin(first);
  fill(between, 1, 1024, first);
  must(launch(add, between, between, 1024, first));
  must(launch(add, between, between, 1024, first));
  must(launch(add, sum, between, 1024, first));
  const CUgraphExec exec = instantiate(end(first));
  for (int i = 0; i < 10; ++i) launch_graph(exec, i % 2 == 0 ? first : second);
  // Launches that are under way continue.
  must(CU(cuGraphExecDestroy)(exec));
  must(CU(cuCtxSynchronize)());
  EXPECT_EQ(view(sum)[0], 40U);
  EXPECT_EQ(view(sum)[1023], 40U);
  EXPECT_EQ(CU(cuGraphLaunch)(exec, first), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(FakeCudaGraph, IsPartOfAnotherIfItIsLaunchedDuringCapture) {
  start();
  const CUdeviceptr memory = allocate(64);
  const CUstream stream = make_stream();
  const CUfunction add = kernel("test_add");
  begin(stream);
  must(launch(add, memory, memory, 16, stream));
  must(launch(add, memory, memory, 16, stream));
  const CUgraphExec inner = instantiate(end(stream));
  begin(stream);
  fill(memory, 1, 16, stream);
  launch_graph(inner, stream);
  launch_graph(inner, stream);
  must(launch(add, memory, memory, 16, stream));
  const CUgraphExec outer = instantiate(end(stream));
  must(CU(cuGraphExecDestroy)(inner));
  launch_graph(outer, stream);
  must(CU(cuStreamSynchronize)(stream));
  EXPECT_EQ(view(memory)[15], 32U);
}

TEST_F(FakeCudaGraph, ReadsPageableMemoryWhenItRuns) {
  start();
  std::vector<std::uint32_t> in(16, 1);
  std::vector<std::uint32_t> out(16);
  const CUdeviceptr memory = allocate(64);
  const CUstream stream = make_stream();
  begin(stream);
  must(CU(cuMemcpyHtoDAsync)(memory, in.data(), 64, stream));
  must(CU(cuMemcpyDtoHAsync)(out.data(), memory, 64, stream));
  const CUgraphExec exec = instantiate(end(stream));
  in.assign(16, 7);
  launch_graph(exec, stream);
  must(CU(cuStreamSynchronize)(stream));
  EXPECT_EQ(out, in);
}

TEST_F(FakeCudaGraph, FailsIfItsMemoryWasFreedAfterTheCapture) {
  start();
  const CUdeviceptr memory = allocate(64);
  const CUstream stream = make_stream();
  begin(stream);
  fill(memory, 1, 16, stream);
  const CUgraphExec exec = instantiate(end(stream));
  must(CU(cuMemFree)(memory));
  EXPECT_EQ(misuses(), 0U);
  launch_graph(exec, stream);
  EXPECT_EQ(CU(cuStreamSynchronize)(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(misuses(), 1U);
}

TEST_F(FakeCudaCapture, IsEndedByCallsThatCannotBeCaptured) {
  start();
  const CUdeviceptr memory = allocate(64);
  const CUstream stream = make_stream(), other = make_stream();
  const CUevent elsewhere = make_event();
  must(CU(cuEventRecord)(elsewhere, other));
  CUdeviceptr address = 0;
  std::uint32_t word = 0;
  const auto callback = [](CUstream, CUresult, void*) {};
  constexpr auto kUnsupported = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const std::vector<std::pair<std::function<CUresult()>, CUresult>> cases = {
      {[&] { return CU(cuStreamQuery)(stream); }, kUnsupported},
      {[&] { return CU(cuStreamSynchronize)(stream); }, kUnsupported},
      {[&] { return CU(cuCtxSynchronize)(); }, kUnsupported},
      {[&] { return CU(cuMemAlloc)(&address, 64); }, kUnsupported},
      {[&] { return CU(cuMemFree)(memory); }, kUnsupported},
      {[&] { return CU(cuMemcpyHtoD)(memory, &word, 4); }, kUnsupported},
      {[&] { return CU(cuEventQuery)(elsewhere); }, kUnsupported},
      {[&] { return CU(cuStreamAddCallback)(stream, callback, nullptr, 0); }, kUnsupported},
      {[&] { return CU(cuStreamWaitEvent)(stream, elsewhere, 0); },
       CUDA_ERROR_STREAM_CAPTURE_ISOLATION},
  };
  for (const auto& [call, expected] : cases) {
    SCOPED_TRACE(&call - &cases.front().first);
    const unsigned long before = misuses();
    begin(stream);
    fill(memory, 1, 16, stream);
    EXPECT_EQ(call(), expected);
    EXPECT_EQ(misuses(), before + 1);
    EXPECT_EQ(status_of(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    EXPECT_EQ(CU(cuMemsetD8Async)(memory, 1, 64, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    end_in_vain(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    must(CU(cuMemsetD8Async)(memory, 1, 64, stream));
    must(CU(cuStreamSynchronize)(stream));
  }
  EXPECT_EQ(live("graph"), 0U);
}

TEST_F(FakeCudaCapture, LeavesOtherStreamsAlone) {
  start();
  const CUdeviceptr memory = allocate(64);
  const CUstream stream = make_stream(), other = make_stream();
  begin(stream);
  fill(memory, 7, 16, other);
  must(CU(cuEventRecord)(make_event(), other));
  std::uint32_t word = 0;
  must(CU(cuMemcpyDtoHAsync)(&word, memory, 4, other));
  EXPECT_EQ(word, 7U);
  // The NULL stream does not wait for non-blocking streams, so this call is allowed.
  fill(memory, 8, 16, nullptr);
  must(CU(cuGraphDestroy)(end(stream)));
  EXPECT_EQ(misuses(), 0U) << last_misuse();
}

TEST_F(FakeCudaCapture, OfABlockingStreamMakesTheNullStreamUnusable) {
  start();
  const CUdeviceptr memory = allocate(64);
  const CUstream stream = make_stream(CU_STREAM_DEFAULT);
  begin(stream);
  auto status = CU_STREAM_CAPTURE_STATUS_NONE;
  EXPECT_EQ(CU(cuStreamIsCapturing)(nullptr, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(status_of(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(CU(cuMemsetD8Async)(memory, 1, 64, nullptr), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  end_in_vain(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(CU(cuStreamBeginCapture)(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(misuses(), 2U);
}

TEST_F(FakeCudaCapture, ProhibitsUnsafeCallsByItsModeAndThatOfTheThread) {
  start();
  struct Case {
    CUstreamCaptureMode of_capture, of_thread;
    bool is_own_thread, is_allowed;
  };
  constexpr auto kGlobal = CU_STREAM_CAPTURE_MODE_GLOBAL;
  constexpr auto kLocal = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
  constexpr auto kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
  const Case cases[] = {
      {kGlobal, kGlobal, true, false}, {kGlobal, kGlobal, false, false},
      {kLocal, kGlobal, true, false},  {kLocal, kGlobal, false, true},
      {kRelaxed, kGlobal, true, true}, {kRelaxed, kGlobal, false, true},
      {kGlobal, kLocal, true, false},  {kGlobal, kLocal, false, true},
      {kGlobal, kRelaxed, true, true}, {kGlobal, kRelaxed, false, true},
  };
  for (const Case& of : cases) {
    SCOPED_TRACE(&of - cases);
    const CUstream stream = make_stream();
    begin(stream, of.of_capture);
    const auto call = [&] {
      must(CU(cuCtxSetCurrent)(context()));
      CUstreamCaptureMode mode = of.of_thread;
      must(CU(cuThreadExchangeStreamCaptureMode)(&mode));
      EXPECT_EQ(mode, kGlobal);
      CUdeviceptr address = 0;
      EXPECT_EQ(CU(cuMemAlloc)(&address, 64),
                of.is_allowed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
      must(CU(cuThreadExchangeStreamCaptureMode)(&mode));
      EXPECT_EQ(mode, of.of_thread);
    };
    if (of.is_own_thread) {
      call();
    } else {
      std::thread(call).join();
    }
    if (of.is_allowed) {
      must(CU(cuGraphDestroy)(end(stream)));
    } else {
      end_in_vain(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
  }
}

TEST_F(FakeCudaCapture, InRelaxedModeStillHasStreamsThatCannotBeWaitedFor) {
  start();
  const CUstream stream = make_stream();
  const CUevent event = make_event();
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  must(CU(cuEventRecord)(event, stream));
  EXPECT_EQ(CU(cuEventQuery)(event), CUDA_ERROR_CAPTURED_EVENT);
  end_in_vain(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_EQ(CU(cuStreamSynchronize)(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  // Any thread may end an invalid capture.
  std::thread([&] {
    must(CU(cuCtxSetCurrent)(context()));
    end_in_vain(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }).join();
  EXPECT_EQ(CU(cuEventQuery)(event), CUDA_ERROR_CAPTURED_EVENT);
  EXPECT_EQ(CU(cuStreamWaitEvent)(stream, event, 0), CUDA_ERROR_CAPTURED_EVENT);
  must(CU(cuEventRecord)(event, stream));
  must(CU(cuEventSynchronize)(event));
}

TEST_F(FakeCudaCapture, EndsWhereItBeganAndWithAllStreamsJoined) {
  start();
  const CUdeviceptr memory = allocate(64);
  const CUstream first = make_stream(), second = make_stream();
  begin(first);
  EXPECT_EQ(CU(cuStreamBeginCapture)(first, CU_STREAM_CAPTURE_MODE_GLOBAL),
            CUDA_ERROR_ILLEGAL_STATE);
  fill(memory, 1, 16, first);
  order(first, second);
  // A stream that joined the capture but added no node need not be joined again.
  must(CU(cuGraphDestroy)(end(first)));

  begin(first);
  order(first, second);
  fill(memory, 1, 16, second);
  end_in_vain(first, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_EQ(status_of(second), CU_STREAM_CAPTURE_STATUS_NONE);

  begin(first);
  order(first, second);
  CUgraph graph = nullptr;
  EXPECT_EQ(CU(cuStreamEndCapture)(second, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  end_in_vain(first, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

  begin(first);
  std::thread([&] {
    must(CU(cuCtxSetCurrent)(context()));
    EXPECT_EQ(CU(cuStreamEndCapture)(first, &graph), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  }).join();
  must(CU(cuGraphDestroy)(end(first)));
  EXPECT_EQ(CU(cuStreamEndCapture)(first, &graph), CUDA_ERROR_ILLEGAL_STATE);

  begin(first);
  must(CU(cuStreamDestroy)(first));
  must(CU(cuCtxSynchronize)());
  EXPECT_EQ(live("graph"), 0U);
}

TEST_F(FakeCudaCapture, IsNotMergedWithAnother) {
  start();
  const CUstream first = make_stream(), second = make_stream();
  const CUevent event = make_event();
  begin(first);
  begin(second);
  must(CU(cuEventRecord)(event, first));
  EXPECT_EQ(CU(cuStreamWaitEvent)(second, event, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
  end_in_vain(first, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  end_in_vain(second, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(FakeCudaCapture, IsDescribedInBothSignatures) {
  start();
  const CUdeviceptr memory = allocate(64);
  const CUstream stream = make_stream();
  const auto look_up = exported<decltype(&cuGetProcAddress)>("cuGetProcAddress_v2");
  void* older = nullptr;
  EXPECT_EQ(look_up("cuStreamGetCaptureInfo", &older, 12000, 0, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(older, exported<void*>("cuStreamGetCaptureInfo_v2"));
  const auto describe =
      reinterpret_cast<CUresult (*)(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*,
                                    const CUgraphNode**, size_t*)>(older);
  auto status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* after = nullptr;
  size_t count = 7;
  EXPECT_EQ(describe(stream, &status, &id, &graph, &after, &count), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
  begin(stream);
  fill(memory, 1, 16, stream);
  EXPECT_EQ(describe(stream, &status, &id, &graph, &after, &count), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  ASSERT_EQ(count, 1U);
  CUgraphNode node = nullptr;
  must(CU(cuGraphGetNodes)(graph, &node, &count));
  EXPECT_EQ(after[0], node);
  cuuint64_t again = 0;
  must(CU(cuStreamGetCaptureInfo)(stream, &status, &again, nullptr, nullptr, nullptr, nullptr));
  EXPECT_EQ(again, id);
  EXPECT_EQ(end(stream), graph);
  begin(stream);
  EXPECT_EQ(describe(stream, &status, &again, nullptr, nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_NE(again, id);
}

}  // namespace
}  // namespace xylem::fake_cuda::test
