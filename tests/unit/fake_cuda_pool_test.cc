// SPDX-License-Identifier: Apache-2.0
//
// The stand-in of the CUDA driver: memory pools, and allocation in the order of streams.
#include "unit/fake_cuda_fixture.h"

#include <atomic>

namespace xylem::fake_cuda::test {
namespace {

class FakeCudaPool : public FakeCuda {
 protected:
  CUdeviceptr allocate_in(CUstream stream, std::size_t bytes) const {
    CUdeviceptr address = 0;
    EXPECT_EQ(CU(cuMemAllocAsync)(&address, bytes, stream), CUDA_SUCCESS);
    return address;
  }
  void order(CUstream from, CUstream to) const {
    const CUevent event = make_event();
    EXPECT_EQ(CU(cuEventRecord)(event, from), CUDA_SUCCESS);
    EXPECT_EQ(CU(cuStreamWaitEvent)(to, event, 0), CUDA_SUCCESS);
  }
  CUmemoryPool default_pool(int device = 0) const {
    CUmemoryPool pool = nullptr;
    EXPECT_EQ(CU(cuDeviceGetDefaultMemPool)(&pool, device), CUDA_SUCCESS);
    return pool;
  }
  std::uint64_t used(CUmemoryPool pool) const {
    cuuint64_t bytes = 7;
    EXPECT_EQ(CU(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes),
              CUDA_SUCCESS);
    return bytes;
  }
};

TEST_F(FakeCudaPool, GivesAndTakesMemoryInTheOrderOfStreams) {
  start({{"FAKE_CUDA_DELAY_US", "200"}});
  const CUstream first = make_stream();
  const CUstream second = make_stream();
  std::vector<std::uint32_t> out(1024);
  const CUfunction add = kernel("test_add");
  for (int i = 0; i < 5; ++i) {
    const CUdeviceptr memory = allocate_in(first, 4096);
    EXPECT_EQ(CU(cuMemsetD32Async)(memory, 7, 1024, first), CUDA_SUCCESS);
    order(first, second);
    EXPECT_EQ(launch(add, memory, memory, 1024, second), CUDA_SUCCESS);
    EXPECT_EQ(CU(cuMemcpyDtoHAsync)(out.data(), memory, 4096, second), CUDA_SUCCESS);
    EXPECT_EQ(out, std::vector<std::uint32_t>(1024, 14));
    EXPECT_EQ(CU(cuMemFreeAsync)(memory, second), CUDA_SUCCESS);
  }
  EXPECT_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
  EXPECT_EQ(live("memory"), 0U);
  EXPECT_EQ(used(default_pool()), 0U);
  EXPECT_EQ(misuses(), 0U) << last_misuse();
}

TEST_F(FakeCudaPool, FailsCommandsThatRunBeforeTheAllocation) {
  start();
  std::uint32_t* gate = allocate_host(1);
  const CUstream first = make_stream();
  const CUstream second = make_stream();
  EXPECT_EQ(CU(cuStreamWaitValue32)(first, on_device(gate), 1, 0), CUDA_SUCCESS);
  const CUdeviceptr memory = allocate_in(first, 64);
  EXPECT_EQ(CU(cuMemsetD8Async)(memory, 7, 64, second), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuStreamSynchronize)(second), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(misuses(), 1U);
}

TEST_F(FakeCudaPool, FailsCommandsThatRunAfterTheFree) {
  for (const bool is_kernel : {false, true}) {
    SCOPED_TRACE(is_kernel);
    start();
    const CUfunction add = kernel("test_add");
    const CUstream stream = make_stream();
    const CUdeviceptr memory = allocate_in(stream, 64);
    std::uint32_t* gate = allocate_host(1);
    EXPECT_EQ(CU(cuStreamWaitValue32)(stream, on_device(gate), 1, 0), CUDA_SUCCESS);
    EXPECT_EQ(CU(cuMemFreeAsync)(memory, stream), CUDA_SUCCESS);
    EXPECT_EQ(CU(cuMemFreeAsync)(memory, stream), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(CU(cuMemFree)(memory), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(is_kernel ? launch(add, memory, memory, 16, stream)
                        : CU(cuMemsetD8Async)(memory, 7, 64, stream),
              CUDA_SUCCESS);
    std::atomic_ref<std::uint32_t>(*gate).store(1);
    EXPECT_EQ(CU(cuStreamSynchronize)(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  }
}

TEST_F(FakeCudaPool, IsKnownByPointerAttributesAndCannotBeSharedByIpc) {
  start();
  const CUstream stream = make_stream();
  const CUdeviceptr memory = allocate_in(stream, 64);
  CUmemoryPool pool = nullptr;
  auto context_of = reinterpret_cast<CUcontext>(8);
  int is_capable = 7;
  EXPECT_EQ(CU(cuPointerGetAttribute)(static_cast<void*>(&pool),
                                      CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory),
            CUDA_SUCCESS);
  EXPECT_EQ(pool, default_pool());
  EXPECT_EQ(CU(cuPointerGetAttribute)(static_cast<void*>(&context_of), CU_POINTER_ATTRIBUTE_CONTEXT,
                                      memory),
            CUDA_SUCCESS);
  EXPECT_EQ(context_of, nullptr);
  EXPECT_EQ(CU(cuPointerGetAttribute)(&is_capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                      memory),
            CUDA_SUCCESS);
  EXPECT_EQ(is_capable, 0);
  CUipcMemHandle handle;
  EXPECT_EQ(CU(cuIpcGetMemHandle)(&handle, memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemFree)(memory), CUDA_SUCCESS);
  EXPECT_EQ(used(pool), 0U);
}

TEST_F(FakeCudaPool, IsAccessedByOtherDevicesOnlyIfTheyWereGivenAccess) {
  start({{"FAKE_CUDA_DEVICES", "2"}});
  const CUcontext peer = retain(1);
  const CUdeviceptr memory = allocate_in(nullptr, 64);
  EXPECT_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuCtxSetCurrent)(peer), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuCtxEnablePeerAccess)(context(), 0), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemsetD8Async)(memory, 7, 64, nullptr), CUDA_ERROR_INVALID_VALUE);
  CUmemLocation there = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  const CUmemAccessDesc access = {there, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  auto flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  EXPECT_EQ(CU(cuMemPoolGetAccess)(&flags, default_pool(), &there), CUDA_SUCCESS);
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  EXPECT_EQ(CU(cuMemPoolSetAccess)(default_pool(), &access, 1), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemPoolGetAccess)(&flags, default_pool(), &there), CUDA_SUCCESS);
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(CU(cuMemsetD8Async)(memory, 7, 64, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
}

TEST_F(FakeCudaPool, CanBeMadeAndTakeThePlaceOfTheDefault) {
  start({{"FAKE_CUDA_MEMORY_MB", "1"}});
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool pool = nullptr;
  CUmemoryPool now = nullptr;
  EXPECT_EQ(CU(cuMemPoolCreate)(&pool, &properties), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuDeviceSetMemPool)(0, pool), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuDeviceGetMemPool)(&now, 0), CUDA_SUCCESS);
  EXPECT_EQ(now, pool);
  cuuint64_t threshold = 1 << 20;
  EXPECT_EQ(CU(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold),
            CUDA_SUCCESS);
  const CUstream stream = make_stream();
  const CUdeviceptr memory = allocate_in(stream, 1 << 20);
  EXPECT_EQ(used(pool), 1U << 20);
  EXPECT_EQ(used(default_pool()), 0U);
  CUdeviceptr more = 0;
  EXPECT_EQ(CU(cuMemAllocFromPoolAsync)(&more, 64, default_pool(), stream),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(CU(cuMemPoolDestroy)(pool), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemPoolDestroy)(pool), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemFreeAsync)(memory, stream), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
  allocate_in(stream, 64);
  EXPECT_EQ(used(default_pool()), 64U);
}

TEST_F(FakeCudaPool, CannotBeCaptured) {
  start();
  const CUstream stream = make_stream();
  EXPECT_EQ(CU(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  CUdeviceptr address = 0;
  EXPECT_EQ(CU(cuMemAllocAsync)(&address, 64, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CUgraph graph = nullptr;
  EXPECT_EQ(CU(cuStreamEndCapture)(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

}  // namespace
}  // namespace xylem::fake_cuda::test
