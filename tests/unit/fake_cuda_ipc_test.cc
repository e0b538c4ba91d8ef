// SPDX-License-Identifier: Apache-2.0
//
// The stand-in of the CUDA driver: two processes share device memory.
#include "unit/fake_cuda_processes.h"

#include <unistd.h>

#include <atomic>

namespace xylem::fake_cuda::test {
namespace {

using FakeCudaIpc = FakeCudaProcesses;

constexpr unsigned kFlags = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;

TEST_F(FakeCudaIpc, LetsAProcessWriteAndSignalInMemoryOfAnother) {
  ASSERT_NO_FATAL_FAILURE(fork_peer([&] {
    start();
    CUdeviceptr memory = 0;
    const CUipcMemHandle handle = receive<CUipcMemHandle>();
    EXPECT_EQ(CU(cuIpcOpenMemHandle)(&memory, handle, kFlags), CUDA_SUCCESS);
    const CUstream stream = make_stream();
    EXPECT_EQ(CU(cuMemsetD32Async)(memory + 4, 7, 1024, stream), CUDA_SUCCESS);
    EXPECT_EQ(CU(cuStreamWriteValue32)(stream, memory, 1, 0), CUDA_SUCCESS);
    EXPECT_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    EXPECT_EQ(misuses(), 0U) << last_misuse();
  }));
  start();
  const CUdeviceptr memory = allocate(8192);
  const CUstream stream = make_stream();
  EXPECT_EQ(CU(cuMemsetD8)(memory, 0, 8192), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuStreamWaitValue32)(stream, memory, 1, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
  CUipcMemHandle handle;
  EXPECT_EQ(CU(cuIpcGetMemHandle)(&handle, memory), CUDA_SUCCESS);
  send(handle);
  std::vector<std::uint32_t> out(1024);
  EXPECT_EQ(CU(cuMemcpyDtoHAsync)(out.data(), memory + 4, 4096, stream), CUDA_SUCCESS);
  EXPECT_EQ(out, std::vector<std::uint32_t>(1024, 7));
  EXPECT_EQ(misuses(), 0U) << last_misuse();
  expect_success_of_peer();
}

TEST_F(FakeCudaIpc, CountsHowOftenMemoryIsOpen) {
  ASSERT_NO_FATAL_FAILURE(fork_peer([&] {
    start();
    const CUipcMemHandle handle = receive<CUipcMemHandle>();
    CUdeviceptr first = 0;
    CUdeviceptr second = 0;
    EXPECT_EQ(CU(cuIpcOpenMemHandle)(&first, handle, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(CU(cuIpcOpenMemHandle)(&first, handle, kFlags), CUDA_SUCCESS);
    EXPECT_EQ(CU(cuIpcOpenMemHandle)(&second, handle, kFlags), CUDA_SUCCESS);
    EXPECT_EQ(first, second);
    EXPECT_EQ(CU(cuMemFree)(first), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(CU(cuIpcCloseMemHandle)(first), CUDA_SUCCESS);
    EXPECT_EQ(live("opened"), 1U);
    EXPECT_EQ(CU(cuIpcCloseMemHandle)(first), CUDA_SUCCESS);
    EXPECT_EQ(live("opened"), 0U);
    EXPECT_EQ(CU(cuIpcCloseMemHandle)(first), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(misuses(), 3U);
  }));
  start();
  CUipcMemHandle handle;
  EXPECT_EQ(CU(cuIpcGetMemHandle)(&handle, allocate(64)), CUDA_SUCCESS);
  send(handle);
  expect_success_of_peer();
}

TEST_F(FakeCudaIpc, FailsCommandsThatRunAfterTheMemoryWasClosed) {
  ASSERT_NO_FATAL_FAILURE(fork_peer([&] {
    start();
    CUdeviceptr memory = 0;
    const CUipcMemHandle handle = receive<CUipcMemHandle>();
    EXPECT_EQ(CU(cuIpcOpenMemHandle)(&memory, handle, kFlags), CUDA_SUCCESS);
    std::uint32_t* gate = allocate_host(1);
    const CUstream stream = make_stream();
    EXPECT_EQ(CU(cuStreamWaitValue32)(stream, on_device(gate), 1, CU_STREAM_WAIT_VALUE_EQ),
              CUDA_SUCCESS);
    EXPECT_EQ(CU(cuMemsetD8Async)(memory, 0, 64, stream), CUDA_SUCCESS);
    EXPECT_EQ(CU(cuIpcCloseMemHandle)(memory), CUDA_SUCCESS);
    std::atomic_ref<std::uint32_t>(*gate).store(1);
    EXPECT_EQ(CU(cuStreamSynchronize)(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(misuses(), 1U);
  }));
  start();
  CUipcMemHandle handle;
  EXPECT_EQ(CU(cuIpcGetMemHandle)(&handle, allocate(64)), CUDA_SUCCESS);
  send(handle);
  expect_success_of_peer();
}

TEST_F(FakeCudaIpc, CountsUsesOfMemoryOfAProcessThatIsForbidden) {
  ASSERT_NO_FATAL_FAILURE(fork_peer([&] {
    start();
    const auto forbid = exported<decltype(&fake_cuda_forbid_opened)>("fake_cuda_forbid_opened");
    CUdeviceptr memory = 0;
    const CUipcMemHandle handle = receive<CUipcMemHandle>();
    EXPECT_EQ(CU(cuIpcOpenMemHandle)(&memory, handle, kFlags), CUDA_SUCCESS);
    const CUdeviceptr own = allocate(64);
    const CUstream stream = make_stream();
    forbid(getpid());
    EXPECT_EQ(CU(cuMemcpyDtoDAsync)(own, memory, 64, stream), CUDA_SUCCESS);
    EXPECT_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    EXPECT_EQ(misuses(), 0U) << last_misuse();
    forbid(getppid());
    EXPECT_EQ(CU(cuMemcpyDtoDAsync)(own, memory, 64, stream), CUDA_SUCCESS);
    EXPECT_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    EXPECT_EQ(misuses(), 1U);
  }));
  start();
  CUipcMemHandle handle;
  EXPECT_EQ(CU(cuIpcGetMemHandle)(&handle, allocate(64)), CUDA_SUCCESS);
  send(handle);
  expect_success_of_peer();
}

TEST_F(FakeCudaIpc, RefusesTheExportingProcessAndMemoryThatIsGone) {
  ASSERT_NO_FATAL_FAILURE(fork_peer([&] {
    start();
    CUdeviceptr memory = 0;
    const CUipcMemHandle handle = receive<CUipcMemHandle>();
    EXPECT_EQ(CU(cuIpcOpenMemHandle)(&memory, handle, kFlags), CUDA_ERROR_INVALID_HANDLE);
  }));
  start();
  const CUdeviceptr memory = allocate(64);
  CUdeviceptr opened = 0;
  CUipcMemHandle handle;
  EXPECT_EQ(CU(cuIpcGetMemHandle)(&handle, memory), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuIpcOpenMemHandle)(&opened, handle, kFlags), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(CU(cuMemFree)(memory), CUDA_SUCCESS);
  // Another allocation may get the descriptor of the freed one.
  allocate(64);
  send(handle);
  expect_success_of_peer();
  EXPECT_EQ(misuses(), 1U);
}

// The memory is the peer's. This process opens it, and its stream waits there.
TEST_F(FakeCudaIpc, LetsAWaitNoticeWhatTheOwnerOfTheMemoryWrites) {
  ASSERT_NO_FATAL_FAILURE(fork_peer([&] {
    start();
    const CUdeviceptr memory = allocate(64);
    EXPECT_EQ(CU(cuMemsetD8)(memory, 0, 64), CUDA_SUCCESS);
    EXPECT_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    CUipcMemHandle handle;
    EXPECT_EQ(CU(cuIpcGetMemHandle)(&handle, memory), CUDA_SUCCESS);
    send(handle);
    receive<char>();
    const CUstream stream = make_stream();
    CUstreamBatchMemOpParams batch[2] = {};
    batch[0].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, memory + 8, {9}, 0, 0};
    batch[1].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_64, memory, {}, 0, 0};
    batch[1].writeValue.value64 = std::uint64_t{1} << 33;
    EXPECT_EQ(CU(cuStreamBatchMemOp)(stream, 2, batch, 0), CUDA_SUCCESS);
    // The other process answers in the same memory.
    EXPECT_EQ(CU(cuStreamWaitValue32)(stream, memory + 16, 10, CU_STREAM_WAIT_VALUE_EQ),
              CUDA_SUCCESS);
    EXPECT_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    EXPECT_EQ(misuses(), 0U) << last_misuse();
  }));
  start();
  CUdeviceptr memory = 0;
  const auto handle = receive<CUipcMemHandle>();
  EXPECT_EQ(CU(cuIpcOpenMemHandle)(&memory, handle, kFlags), CUDA_SUCCESS);
  std::uint32_t* seen = allocate_host(1);
  const CUstream stream = make_stream();
  CUstreamBatchMemOpParams batch[2] = {};
  batch[0].waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_64, memory, {}, 0, 0};
  batch[0].waitValue.value64 = std::uint64_t{1} << 33;
  batch[1].waitValue = {
      CU_STREAM_MEM_OP_WAIT_VALUE_32, memory + 8, {8}, CU_STREAM_WAIT_VALUE_AND, 0};
  EXPECT_EQ(CU(cuStreamBatchMemOp)(stream, 2, batch, 0), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemcpyAsync)(on_device(seen), memory + 8, 4, stream), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuStreamWriteValue32)(stream, memory + 16, 10, 0), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuStreamQuery)(stream), CUDA_ERROR_NOT_READY);
  send('x');
  EXPECT_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
  EXPECT_EQ(*seen, 9U);
  expect_success_of_peer();
  EXPECT_EQ(CU(cuIpcCloseMemHandle)(memory), CUDA_SUCCESS);
  EXPECT_EQ(misuses(), 0U) << last_misuse();
}

class FakeCudaIpcEvent : public FakeCudaProcesses {
 protected:
  CUevent make_shared_event() const {
    CUevent event = nullptr;
    EXPECT_EQ(CU(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS),
              CUDA_SUCCESS);
    return event;
  }
};

TEST_F(FakeCudaIpcEvent, OrdersStreamsOfTwoProcesses) {
  ASSERT_NO_FATAL_FAILURE(fork_peer([&] {
    start();
    const auto of_memory = receive<CUipcMemHandle>();
    const auto of_event = receive<CUipcEventHandle>();
    CUdeviceptr memory = 0;
    CUevent event = nullptr;
    EXPECT_EQ(CU(cuIpcOpenMemHandle)(&memory, of_memory, kFlags), CUDA_SUCCESS);
    EXPECT_EQ(CU(cuIpcOpenEventHandle)(&event, of_event), CUDA_SUCCESS);
    EXPECT_EQ(CU(cuEventQuery)(event), CUDA_ERROR_NOT_READY);
    const CUstream stream = make_stream();
    const CUfunction add = kernel("test_add");
    EXPECT_EQ(CU(cuStreamWaitEvent)(stream, event, 0), CUDA_SUCCESS);
    EXPECT_EQ(launch(add, memory, memory, 1024, stream), CUDA_SUCCESS);
    EXPECT_EQ(CU(cuStreamQuery)(stream), CUDA_ERROR_NOT_READY);
    send('x');
    EXPECT_EQ(CU(cuEventSynchronize)(event), CUDA_SUCCESS);
    EXPECT_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    // Now the other process waits for this one.
    EXPECT_EQ(CU(cuEventRecord)(event, stream), CUDA_SUCCESS);
    send('x');
    receive<char>();
    CUipcEventHandle again;
    EXPECT_EQ(CU(cuIpcGetEventHandle)(&again, event), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(CU(cuEventDestroy)(event), CUDA_SUCCESS);
    EXPECT_EQ(misuses(), 1U) << last_misuse();
  }));
  start({{"FAKE_CUDA_DELAY_US", "500"}});
  std::uint32_t* gate = allocate_host(1);
  const CUdeviceptr memory = allocate(4096);
  const CUevent event = make_shared_event();
  const CUstream stream = make_stream();
  EXPECT_EQ(CU(cuEventQuery)(event), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuStreamWaitValue32)(stream, on_device(gate), 1, 0), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemsetD32Async)(memory, 7, 1024, stream), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuEventRecord)(event, stream), CUDA_SUCCESS);
  CUipcMemHandle of_memory;
  CUipcEventHandle of_event;
  EXPECT_EQ(CU(cuIpcGetMemHandle)(&of_memory, memory), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuIpcGetEventHandle)(&of_event, event), CUDA_SUCCESS);
  send(of_memory);
  send(of_event);
  receive<char>();
  std::atomic_ref<std::uint32_t>(*gate).store(1);
  receive<char>();
  std::vector<std::uint32_t> out(1024);
  EXPECT_EQ(CU(cuStreamWaitEvent)(stream, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemcpyDtoHAsync)(out.data(), memory, 4096, stream), CUDA_SUCCESS);
  EXPECT_EQ(out, std::vector<std::uint32_t>(1024, 14));
  EXPECT_EQ(CU(cuEventQuery)(event), CUDA_SUCCESS);
  send('x');
  expect_success_of_peer();
  EXPECT_EQ(misuses(), 0U) << last_misuse();
}

TEST_F(FakeCudaIpcEvent, IsRefusedIfItIsNotSharedOrGone) {
  ASSERT_NO_FATAL_FAILURE(fork_peer([&] {
    start();
    CUevent event = nullptr;
    const auto handle = receive<CUipcEventHandle>();
    EXPECT_EQ(CU(cuIpcOpenEventHandle)(&event, handle), CUDA_ERROR_INVALID_HANDLE);
  }));
  start();
  CUipcEventHandle handle;
  EXPECT_EQ(CU(cuIpcGetEventHandle)(&handle, make_event()), CUDA_ERROR_INVALID_HANDLE);
  CUevent event = make_shared_event();
  EXPECT_EQ(CU(cuIpcGetEventHandle)(&handle, event), CUDA_SUCCESS);
  CUevent opened = nullptr;
  EXPECT_EQ(CU(cuIpcOpenEventHandle)(&opened, handle), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(CU(cuEventDestroy)(event), CUDA_SUCCESS);
  send(handle);
  expect_success_of_peer();
  EXPECT_EQ(misuses(), 2U);
}

}  // namespace
}  // namespace xylem::fake_cuda::test
