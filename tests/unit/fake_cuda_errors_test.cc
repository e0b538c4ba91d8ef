// SPDX-License-Identifier: Apache-2.0
//
// The stand-in for the CUDA driver: misuse, planned faults, contexts, access between devices, and
// lookup of functions.
#include "unit/fake_cuda_fixture.h"

#include <atomic>
#include <thread>

namespace xylem::fake_cuda::test {
namespace {

using FakeCudaMisuse = FakeCuda;

TEST_F(FakeCudaMisuse, IsCountedForHandlesThatAreGone) {
  start();
  const CUdeviceptr memory = allocate(64);
  const CUstream stream = make_stream();
  const CUevent event = make_event();
  must(CU(cuStreamDestroy)(stream));
  must(CU(cuEventDestroy)(event));
  must(CU(cuMemFree)(memory));
  EXPECT_EQ(misuses(), 0U);
  EXPECT_EQ(CU(cuStreamQuery)(stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(CU(cuStreamDestroy)(stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(CU(cuEventQuery)(event), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(CU(cuMemFree)(memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemsetD8Async)(memory, 0, 64, nullptr), CUDA_ERROR_INVALID_VALUE);
  std::uint32_t word = 0;
  EXPECT_EQ(CU(cuMemcpyAsync)(on_device(&word), memory, 4, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(misuses(), 6U);
  EXPECT_EQ(last_misuse().substr(0, 14), "cuMemcpyAsync:");
  EXPECT_EQ(live("memory") + live("stream") + live("event"), 0U);
}

TEST_F(FakeCudaMisuse, IsCountedForCallsWithoutAContext) {
  start();
  const CUdeviceptr memory = allocate(64);
  std::thread([&] {
    CUdeviceptr other = 0;
    EXPECT_EQ(CU(cuMemAlloc)(&other, 64), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(CU(cuMemFree)(memory), CUDA_ERROR_INVALID_CONTEXT);
    must(CU(cuCtxPushCurrent)(context()));
    must(CU(cuMemAlloc)(&other, 64));
    CUcontext popped = nullptr;
    must(CU(cuCtxPopCurrent)(&popped));
    EXPECT_EQ(popped, context());
  }).join();
  EXPECT_EQ(misuses(), 2U);
  must(CU(cuDevicePrimaryCtxRelease)(0));
  EXPECT_EQ(CU(cuCtxSynchronize)(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(live("memory") + live("context"), 0U);
}

TEST_F(FakeCudaMisuse, IsCountedForCallsInHostFunctions) {
  start();
  struct Shared {
    CUresult (*query)(CUstream);
    std::atomic<CUresult> result;
  } shared{CU(cuStreamQuery), {CUDA_SUCCESS}};
  const auto function = [](void* data) {
    auto& of = *static_cast<Shared*>(data);
    of.result = of.query(nullptr);
  };
  must(CU(cuLaunchHostFunc)(nullptr, function, &shared));
  must(CU(cuCtxSynchronize)());
  EXPECT_EQ(shared.result, CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(misuses(), 1U);
}

TEST_F(FakeCudaMisuse, IsCountedForCopiesBeyondAnAllocation) {
  start();
  const CUdeviceptr memory = allocate(64);
  EXPECT_EQ(CU(cuMemsetD8Async)(memory + 60, 0, 5, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemcpyDtoDAsync)(memory, memory + 32, 33, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuStreamWriteValue64)(nullptr, memory + 4, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuStreamBatchMemOp)(nullptr, 1, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(misuses(), 4U);
}

TEST_F(FakeCudaMisuse, IsCountedForMemoryThatIsRegisteredTwice) {
  start();
  std::vector<std::uint32_t> memory(100);
  must(CU(cuMemHostRegister)(memory.data(), 400, 0));
  EXPECT_EQ(CU(cuMemHostRegister)(memory.data() + 50, 4, 0),
            CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  CUdeviceptr address = 0;
  must(CU(cuMemHostGetDevicePointer)(&address, memory.data(), 0));
  EXPECT_EQ(address, on_device(memory.data()));
  EXPECT_EQ(live("registration"), 1U);
  must(CU(cuMemHostUnregister)(memory.data()));
  EXPECT_EQ(CU(cuMemHostUnregister)(memory.data()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  EXPECT_EQ(misuses(), 2U);
}

using FakeCudaFault = FakeCuda;

TEST_F(FakeCudaFault, HitsTheCallThatThePlanNames) {
  start({{"FAKE_CUDA_FAULTS", "cuMemAlloc_v2:2=2,cuStreamCreate:1=999"}});
  CUdeviceptr address = 0;
  CUstream stream = nullptr;
  must(CU(cuMemAlloc)(&address, 4));
  EXPECT_EQ(CU(cuMemAlloc)(&address, 4), CUDA_ERROR_OUT_OF_MEMORY);
  must(CU(cuMemAlloc)(&address, 4));
  EXPECT_EQ(CU(cuStreamCreate)(&stream, 0), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(calls("cuMemAlloc_v2"), 3U);
  EXPECT_EQ(misuses(), 0U);
}

TEST_F(FakeCudaFault, LeavesOutCallsOfTheTestItself) {
  start({{"FAKE_CUDA_FAULTS", "cuMemAlloc_v2:1=2"}});
  const auto exempt = exported<decltype(&fake_cuda_exempt)>("fake_cuda_exempt");
  CUdeviceptr address = 0;
  exempt(1);
  must(CU(cuMemAlloc)(&address, 4));
  exempt(0);
  EXPECT_EQ(calls("cuMemAlloc_v2"), 0U);
  EXPECT_EQ(CU(cuMemAlloc)(&address, 4), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(FakeCudaFault, OfADeviceStaysAndEndsItsWaits) {
  start({{"FAKE_CUDA_FAULTS", "cuStreamQuery:2=719"}});
  std::uint32_t* gate = allocate_host(1);
  const CUdeviceptr memory = allocate(64);
  const CUstream stream = make_stream();
  const CUevent event = make_event();
  hold(stream, gate);
  must(CU(cuEventRecord)(event, stream));
  EXPECT_EQ(CU(cuStreamQuery)(stream), CUDA_ERROR_NOT_READY);
  std::thread waiting([&] {
    must(CU(cuCtxSetCurrent)(context()));
    EXPECT_EQ(CU(cuEventSynchronize)(event), CUDA_ERROR_LAUNCH_FAILED);
  });
  EXPECT_EQ(CU(cuStreamQuery)(stream), CUDA_ERROR_LAUNCH_FAILED);
  waiting.join();
  EXPECT_EQ(CU(cuStreamSynchronize)(stream), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(CU(cuEventQuery)(event), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(CU(cuMemsetD8Async)(memory, 0, 4, stream), CUDA_ERROR_LAUNCH_FAILED);
  // Functions that release an object return the error of the lost device, but release the object.
  EXPECT_EQ(CU(cuStreamDestroy)(stream), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(CU(cuEventDestroy)(event), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(CU(cuMemFree)(memory), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(CU(cuMemFreeHost)(gate), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(live("stream") + live("event") + live("memory"), 0U);
  EXPECT_EQ(misuses(), 0U) << last_misuse();
}

TEST_F(FakeCudaFault, IsToldToCallbacksButDropsHostFunctions) {
  start({{"FAKE_CUDA_FAULTS", "cuStreamQuery:1=719"}});
  std::uint32_t* gate = allocate_host(1);
  const CUstream stream = make_stream();
  struct Told {
    std::atomic<int> callbacks{0}, host_functions{0};
    std::atomic<CUresult> last{CUDA_ERROR_UNKNOWN};
  } told;
  const auto callback = [](CUstream, CUresult result, void* data) {
    auto& of = *static_cast<Told*>(data);
    of.last = result;
    ++of.callbacks;
  };
  const auto host_function = [](void* data) { ++static_cast<Told*>(data)->host_functions; };
  must(CU(cuStreamAddCallback)(stream, callback, &told, 0));
  must(CU(cuStreamSynchronize)(stream));
  EXPECT_EQ(told.last, CUDA_SUCCESS);
  hold(stream, gate);
  must(CU(cuLaunchHostFunc)(stream, host_function, &told));
  must(CU(cuStreamAddCallback)(stream, callback, &told, 0));
  EXPECT_EQ(CU(cuStreamQuery)(stream), CUDA_ERROR_LAUNCH_FAILED);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (told.callbacks < 2 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_EQ(told.callbacks, 2);
  EXPECT_EQ(told.last, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(told.host_functions, 0);
}

TEST_F(FakeCudaFault, SwitchesFeaturesOff) {
  start({{"FAKE_CUDA_FAULTS", "unsupported=memops,unsupported=ipc"}});
  const CUdeviceptr memory = allocate(64);
  int value = 7;
  must(CU(cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0));
  EXPECT_EQ(value, 0);
  EXPECT_EQ(CU(cuStreamWriteValue64)(nullptr, memory, 1, 0), CUDA_ERROR_NOT_SUPPORTED);
  CUipcMemHandle handle;
  EXPECT_EQ(CU(cuIpcGetMemHandle)(&handle, memory), CUDA_ERROR_NOT_SUPPORTED);
  must(CU(cuPointerGetAttribute)(&value, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, memory));
  EXPECT_EQ(value, 0);
}

TEST_F(FakeCudaFault, CanBeThatTheDriverDoesNotStart) {
  load({{"FAKE_CUDA_INIT", "803"}});
  EXPECT_EQ(CU(cuInit)(0), CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
  int count = 0;
  EXPECT_EQ(CU(cuDeviceGetCount)(&count), CUDA_ERROR_NOT_INITIALIZED);
  load({{"FAKE_CUDA_DEVICES", "0"}});
  EXPECT_EQ(CU(cuInit)(0), CUDA_ERROR_NO_DEVICE);
}

using FakeCudaDevices = FakeCuda;

TEST_F(FakeCudaDevices, HaveAContextOnlyIfTheyAreUsed) {
  start({{"FAKE_CUDA_DEVICES", "3"}});
  retain(2);
  for (int device = 0; device < 3; ++device) {
    unsigned flags = 0;
    int is_active = 7;
    must(CU(cuDevicePrimaryCtxGetState)(device, &flags, &is_active));
    EXPECT_EQ(is_active, device == 1 ? 0 : 1);
  }
  EXPECT_EQ(live("context"), 2U);
}

TEST_F(FakeCudaDevices, AccessEachOthersMemoryOnlyIfAccessIsEnabled) {
  start({{"FAKE_CUDA_DEVICES", "2"}});
  const CUdeviceptr here = allocate(64);
  const CUstream stream = make_stream();
  const CUcontext peer = retain(1);
  must(CU(cuCtxPushCurrent)(peer));
  const CUdeviceptr there = allocate(64);
  EXPECT_EQ(launch(kernel("test_add"), there, there, 1, stream), CUDA_ERROR_INVALID_HANDLE);
  must(CU(cuCtxPopCurrent)(nullptr));
  EXPECT_EQ(CU(cuMemcpyDtoDAsync)(here, there, 64, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(misuses(), 2U);
  must(CU(cuMemcpyPeerAsync)(here, context(), there, peer, 64, stream));
  must(CU(cuCtxEnablePeerAccess)(peer, 0));
  must(CU(cuMemcpyDtoDAsync)(here, there, 64, stream));
  must(launch(kernel("test_add"), here, there, 16, stream));
  must(CU(cuStreamSynchronize)(stream));
  must(CU(cuCtxDisablePeerAccess)(peer));
  must(launch(kernel("test_add"), here, there, 16, stream));
  EXPECT_EQ(CU(cuStreamSynchronize)(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(misuses(), 2U) << last_misuse();
}

TEST_F(FakeCudaDevices, SeeWhatKernelsWriteToThemAfterAFence) {
  start({{"FAKE_CUDA_DEVICES", "2"}});
  const CUstream stream = make_stream();
  std::uint32_t* const seen = allocate_host(2);
  const CUdeviceptr here = allocate(64);
  const CUcontext peer = retain(1);
  must(CU(cuCtxPushCurrent)(peer));
  const CUdeviceptr there = allocate(64);
  must(CU(cuCtxPopCurrent)(nullptr));
  must(CU(cuCtxEnablePeerAccess)(peer, 0));
  for (const CUdeviceptr target : {here, there}) {
    must(launch(kernel("test_put"), target, on_device(seen), 1, stream, 1, 1));
    must(CU(cuStreamSynchronize)(stream));
    EXPECT_EQ(seen[0] == 1, target == here);
    EXPECT_EQ(seen[1], 1U);
  }
  EXPECT_EQ(misuses(), 0U) << last_misuse();
  must(launch(kernel("test_put"), there, on_device(seen), 2, stream, 1, 1));
  must(CU(cuStreamSynchronize)(stream));
  EXPECT_EQ(misuses(), 1U) << "it reads memory of another device after a wait without a fence";
}

TEST_F(FakeCudaDevices, CopyToEachOtherWithAndWithoutAccess) {
  start({{"FAKE_CUDA_DEVICES", "2"}});
  const CUdeviceptr here = allocate(64);
  const CUcontext peer = retain(1);
  must(CU(cuCtxPushCurrent)(peer));
  const CUdeviceptr there = allocate(64);
  must(CU(cuMemsetD32Async)(there, 7, 16, nullptr));
  must(CU(cuCtxSynchronize)());
  must(CU(cuCtxPopCurrent)(nullptr));
  EXPECT_EQ(CU(cuMemcpy)(here, there, 64), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(misuses(), 1U);
  must(CU(cuMemcpyPeer)(here, context(), there, peer, 64));
  std::vector<std::uint32_t> out(16);
  must(CU(cuMemcpyDtoH)(out.data(), here, 64));
  EXPECT_EQ(out, std::vector<std::uint32_t>(16, 7));
  must(CU(cuCtxEnablePeerAccess)(peer, 0));
  must(CU(cuMemsetD32Async)(here, 8, 16, nullptr));
  must(CU(cuMemcpyDtoD)(there, here, 64));
  must(CU(cuMemcpy)(on_device(out.data()), there, 64));
  EXPECT_EQ(out, std::vector<std::uint32_t>(16, 8));
  EXPECT_EQ(misuses(), 1U) << last_misuse();
}

TEST_F(FakeCudaDevices, AreNoPeersIfThePlanSaysSo) {
  for (const bool are_peers : {true, false}) {
    SCOPED_TRACE(are_peers);
    start({{"FAKE_CUDA_DEVICES", "2"}, {"FAKE_CUDA_FAULTS", are_peers ? "" : "unsupported=peers"}});
    int can = 7;
    must(CU(cuDeviceCanAccessPeer)(&can, 0, 1));
    EXPECT_EQ(can, are_peers ? 1 : 0);
    must(CU(cuDeviceGetP2PAttribute)(&can, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, 0, 1));
    EXPECT_EQ(can, are_peers ? 1 : 0);
    EXPECT_EQ(CU(cuCtxEnablePeerAccess)(retain(1), 0),
              are_peers ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  }
}

TEST_F(FakeCudaDevices, RunOutOfMemory) {
  start({{"FAKE_CUDA_MEMORY_MB", "1"}});
  const CUdeviceptr memory = allocate(1 << 20);
  CUdeviceptr other = 0;
  EXPECT_EQ(CU(cuMemAlloc)(&other, 1), CUDA_ERROR_OUT_OF_MEMORY);
  must(CU(cuMemFree)(memory));
  std::size_t free = 0;
  std::size_t total = 0;
  must(CU(cuMemGetInfo)(&free, &total));
  EXPECT_EQ(free, total);
}

using FakeCudaLookup = FakeCuda;

TEST_F(FakeCudaLookup, FindsFunctionsByPlainNameAndVersion) {
  load({{"FAKE_CUDA_VERSION", "12000"}});
  const auto status_of = [this](const char* name, int version) {
    const auto look_up = exported<decltype(&cuGetProcAddress)>("cuGetProcAddress_v2");
    void* function = nullptr;
    auto status = CU_GET_PROC_ADDRESS_SUCCESS;
    EXPECT_EQ(look_up(name, &function, version, 0, &status), CUDA_SUCCESS);
    EXPECT_EQ(function != nullptr, status == CU_GET_PROC_ADDRESS_SUCCESS);
    return status;
  };
  EXPECT_EQ(status_of("cuMemAlloc", 12000), CU_GET_PROC_ADDRESS_SUCCESS);
  EXPECT_EQ(status_of("cuStreamWaitValue64", 11070), CU_GET_PROC_ADDRESS_SUCCESS);
  EXPECT_EQ(status_of("cuStreamWaitValue64", 11060), CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT_EQ(status_of("cuMemAlloc_v2", 12000), CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(status_of("cuGraphAddKernelNode", 12000), CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(status_of("cuMemAllocPitch", 12000), CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_NE(exported<decltype(&cuMemAlloc)>("cuMemAlloc_v2"), nullptr);
  load({{"FAKE_CUDA_VERSION", "11080"}});
  EXPECT_EQ(status_of("cuKernelGetFunction", 11080), CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(misuses(), 0U) << last_misuse();
}

}  // namespace
}  // namespace xylem::fake_cuda::test
