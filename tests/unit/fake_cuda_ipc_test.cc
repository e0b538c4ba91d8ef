// SPDX-License-Identifier: Apache-2.0
//
// The stand-in for the CUDA driver: two processes share device memory.
#include "unit/fake_cuda_processes.h"

#include <unistd.h>

namespace xylem::fake_cuda::test {
namespace {

class FakeCudaIpc : public FakeCudaProcesses {
 protected:
  CUipcMemHandle handle_of(CUdeviceptr memory) const {
    CUipcMemHandle handle;
    must(CU(cuIpcGetMemHandle)(&handle, memory));
    return handle;
  }
  static constexpr unsigned kFlags = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
  /// Opens the memory whose handle the other process sends.
  CUdeviceptr open_received() const {
    CUdeviceptr memory = 0;
    must(CU(cuIpcOpenMemHandle)(&memory, receive<CUipcMemHandle>(), kFlags));
    return memory;
  }
  /// Starts the driver. The peer then tests memory that is allocated in this process.
  void share_with_peer() {
    start();
    send(handle_of(allocate(64)));
    expect_success_of_peer();
  }
};

TEST_F(FakeCudaIpc, LetsAProcessWriteAndSignalInMemoryOfAnother) {
  fork_peer([&] {
    start();
    const CUdeviceptr memory = open_received();
    const CUstream stream = make_stream();
    must(CU(cuMemsetD32Async)(memory + 4, 7, 1024, stream));
    must(CU(cuStreamWriteValue32)(stream, memory, 1, 0));
    must(CU(cuStreamSynchronize)(stream));
    EXPECT_EQ(misuses(), 0U) << last_misuse();
  });
  start();
  const CUdeviceptr memory = allocate(8192);
  const CUstream stream = make_stream();
  must(CU(cuMemsetD8)(memory, 0, 8192));
  must(CU(cuCtxSynchronize)());
  must(CU(cuStreamWaitValue32)(stream, memory, 1, CU_STREAM_WAIT_VALUE_GEQ));
  send(handle_of(memory));
  EXPECT_EQ(words_at(memory + 4, 1024, stream), std::vector<std::uint32_t>(1024, 7));
  EXPECT_EQ(misuses(), 0U) << last_misuse();
  expect_success_of_peer();
}

TEST_F(FakeCudaIpc, CountsHowOftenMemoryIsOpen) {
  fork_peer([&] {
    start();
    const CUipcMemHandle handle = receive<CUipcMemHandle>();
    CUdeviceptr first = 0;
    CUdeviceptr second = 0;
    EXPECT_EQ(CU(cuIpcOpenMemHandle)(&first, handle, 0), CUDA_ERROR_INVALID_VALUE);
    must(CU(cuIpcOpenMemHandle)(&first, handle, kFlags));
    must(CU(cuIpcOpenMemHandle)(&second, handle, kFlags));
    EXPECT_EQ(first, second);
    EXPECT_EQ(CU(cuMemFree)(first), CUDA_ERROR_INVALID_VALUE);
    must(CU(cuIpcCloseMemHandle)(first));
    EXPECT_EQ(live("opened"), 1U);
    must(CU(cuIpcCloseMemHandle)(first));
    EXPECT_EQ(live("opened"), 0U);
    EXPECT_EQ(CU(cuIpcCloseMemHandle)(first), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(misuses(), 3U);
  });
  share_with_peer();
}

TEST_F(FakeCudaIpc, FailsCommandsThatRunAfterTheMemoryWasClosed) {
  fork_peer([&] {
    start();
    const CUdeviceptr memory = open_received();
    std::uint32_t* gate = allocate_host(1);
    const CUstream stream = make_stream();
    hold(stream, gate);
    must(CU(cuMemsetD8Async)(memory, 0, 64, stream));
    must(CU(cuIpcCloseMemHandle)(memory));
    open(gate);
    EXPECT_EQ(CU(cuStreamSynchronize)(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(misuses(), 1U);
  });
  share_with_peer();
}

TEST_F(FakeCudaIpc, CountsUsesOfMemoryOfAProcessThatIsForbidden) {
  fork_peer([&] {
    start();
    const auto forbid = exported<decltype(&fake_cuda_forbid_opened)>("fake_cuda_forbid_opened");
    const CUdeviceptr memory = open_received();
    const CUdeviceptr own = allocate(64);
    const CUstream stream = make_stream();
    forbid(getpid());
    must(CU(cuMemcpyDtoDAsync)(own, memory, 64, stream));
    must(CU(cuStreamSynchronize)(stream));
    EXPECT_EQ(misuses(), 0U) << last_misuse();
    forbid(getppid());
    must(CU(cuMemcpyDtoDAsync)(own, memory, 64, stream));
    must(CU(cuStreamSynchronize)(stream));
    EXPECT_EQ(misuses(), 1U);
  });
  share_with_peer();
}

TEST_F(FakeCudaIpc, RefusesTheExportingProcessAndMemoryThatIsGone) {
  fork_peer([&] {
    start();
    CUdeviceptr memory = 0;
    const CUipcMemHandle handle = receive<CUipcMemHandle>();
    EXPECT_EQ(CU(cuIpcOpenMemHandle)(&memory, handle, kFlags), CUDA_ERROR_INVALID_HANDLE);
  });
  start();
  const CUdeviceptr memory = allocate(64);
  CUdeviceptr opened = 0;
  CUipcMemHandle handle;
  must(CU(cuIpcGetMemHandle)(&handle, memory));
  EXPECT_EQ(CU(cuIpcOpenMemHandle)(&opened, handle, kFlags), CUDA_ERROR_INVALID_CONTEXT);
  must(CU(cuMemFree)(memory));
  // Another allocation may reuse the file descriptor of the freed one.
  allocate(64);
  send(handle);
  expect_success_of_peer();
  EXPECT_EQ(misuses(), 1U);
}

// The peer owns the memory. This process opens it, and its stream waits for a word of it.
TEST_F(FakeCudaIpc, LetsAWaitNoticeWhatTheOwnerOfTheMemoryWrites) {
  fork_peer([&] {
    start();
    const CUdeviceptr memory = allocate(64);
    must(CU(cuMemsetD8)(memory, 0, 64));
    must(CU(cuCtxSynchronize)());
    send(handle_of(memory));
    receive<char>();
    const CUstream stream = make_stream();
    CUstreamBatchMemOpParams batch[2] = {};
    batch[0].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, memory + 8, {9}, 0, 0};
    batch[1].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_64, memory, {}, 0, 0};
    batch[1].writeValue.value64 = std::uint64_t{1} << 33;
    must(CU(cuStreamBatchMemOp)(stream, 2, batch, 0));
    // The other process answers in the same memory.
    must(CU(cuStreamWaitValue32)(stream, memory + 16, 10, CU_STREAM_WAIT_VALUE_EQ));
    must(CU(cuStreamSynchronize)(stream));
    EXPECT_EQ(misuses(), 0U) << last_misuse();
  });
  start();
  const CUdeviceptr memory = open_received();
  std::uint32_t* seen = allocate_host(1);
  const CUstream stream = make_stream();
  CUstreamBatchMemOpParams batch[2] = {};
  batch[0].waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_64, memory, {}, 0, 0};
  batch[0].waitValue.value64 = std::uint64_t{1} << 33;
  batch[1].waitValue = {
      CU_STREAM_MEM_OP_WAIT_VALUE_32, memory + 8, {8}, CU_STREAM_WAIT_VALUE_AND, 0};
  must(CU(cuStreamBatchMemOp)(stream, 2, batch, 0));
  must(CU(cuMemcpyAsync)(on_device(seen), memory + 8, 4, stream));
  must(CU(cuStreamWriteValue32)(stream, memory + 16, 10, 0));
  EXPECT_EQ(CU(cuStreamQuery)(stream), CUDA_ERROR_NOT_READY);
  send('x');
  must(CU(cuStreamSynchronize)(stream));
  EXPECT_EQ(*seen, 9U);
  expect_success_of_peer();
  must(CU(cuIpcCloseMemHandle)(memory));
  EXPECT_EQ(misuses(), 0U) << last_misuse();
}

class FakeCudaIpcEvent : public FakeCudaIpc {
 protected:
  CUevent make_shared_event() const {
    CUevent event = nullptr;
    must(CU(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
    return event;
  }
};

TEST_F(FakeCudaIpcEvent, OrdersStreamsOfTwoProcesses) {
  fork_peer([&] {
    start();
    const CUdeviceptr memory = open_received();
    CUevent event = nullptr;
    must(CU(cuIpcOpenEventHandle)(&event, receive<CUipcEventHandle>()));
    EXPECT_EQ(CU(cuEventQuery)(event), CUDA_ERROR_NOT_READY);
    const CUstream stream = make_stream();
    const CUfunction add = kernel("test_add");
    must(CU(cuStreamWaitEvent)(stream, event, 0));
    must(launch(add, memory, memory, 1024, stream));
    EXPECT_EQ(CU(cuStreamQuery)(stream), CUDA_ERROR_NOT_READY);
    send('x');
    must(CU(cuEventSynchronize)(event));
    must(CU(cuStreamSynchronize)(stream));
    // From here on, the other process waits for this one.
    must(CU(cuEventRecord)(event, stream));
    send('x');
    receive<char>();
    CUipcEventHandle again;
    EXPECT_EQ(CU(cuIpcGetEventHandle)(&again, event), CUDA_ERROR_INVALID_HANDLE);
    must(CU(cuEventDestroy)(event));
    EXPECT_EQ(misuses(), 1U) << last_misuse();
  });
  start({{"FAKE_CUDA_DELAY_US", "500"}});
  std::uint32_t* gate = allocate_host(1);
  const CUdeviceptr memory = allocate(4096);
  const CUevent event = make_shared_event();
  const CUstream stream = make_stream();
  must(CU(cuEventQuery)(event));
  hold(stream, gate);
  must(CU(cuMemsetD32Async)(memory, 7, 1024, stream));
  must(CU(cuEventRecord)(event, stream));
  CUipcEventHandle of_event;
  must(CU(cuIpcGetEventHandle)(&of_event, event));
  send(handle_of(memory));
  send(of_event);
  receive<char>();
  open(gate);
  receive<char>();
  must(CU(cuStreamWaitEvent)(stream, event, 0));
  EXPECT_EQ(words_at(memory, 1024, stream), std::vector<std::uint32_t>(1024, 14));
  must(CU(cuEventQuery)(event));
  send('x');
  expect_success_of_peer();
  EXPECT_EQ(misuses(), 0U) << last_misuse();
}

TEST_F(FakeCudaIpcEvent, IsRefusedIfItIsNotSharedOrGone) {
  fork_peer([&] {
    start();
    CUevent event = nullptr;
    const auto handle = receive<CUipcEventHandle>();
    EXPECT_EQ(CU(cuIpcOpenEventHandle)(&event, handle), CUDA_ERROR_INVALID_HANDLE);
  });
  start();
  CUipcEventHandle handle;
  EXPECT_EQ(CU(cuIpcGetEventHandle)(&handle, make_event()), CUDA_ERROR_INVALID_HANDLE);
  CUevent event = make_shared_event();
  must(CU(cuIpcGetEventHandle)(&handle, event));
  CUevent opened = nullptr;
  EXPECT_EQ(CU(cuIpcOpenEventHandle)(&opened, handle), CUDA_ERROR_INVALID_CONTEXT);
  must(CU(cuEventDestroy)(event));
  send(handle);
  expect_success_of_peer();
  EXPECT_EQ(misuses(), 2U);
}

}  // namespace
}  // namespace xylem::fake_cuda::test
