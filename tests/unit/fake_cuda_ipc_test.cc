// SPDX-License-Identifier: Apache-2.0
//
// The stand-in of the CUDA driver: two processes share device memory.
#include "unit/fake_cuda_processes.h"

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

}  // namespace
}  // namespace xylem::fake_cuda::test
