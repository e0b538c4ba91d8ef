// SPDX-License-Identifier: Apache-2.0
//
// The stand-in for the CUDA driver: memory pools, and allocation in stream order.
#include "unit/fake_cuda_fixture.h"

namespace xylem::fake_cuda::test {
namespace {

class FakeCudaPool : public FakeCuda {
 protected:
  CUdeviceptr allocate_in(CUstream stream, std::size_t bytes) const {
    CUdeviceptr address = 0;
    must(CU(cuMemAllocAsync)(&address, bytes, stream));
    return address;
  }
  CUmemoryPool default_pool(int device = 0) const {
    CUmemoryPool pool = nullptr;
    must(CU(cuDeviceGetDefaultMemPool)(&pool, device));
    return pool;
  }
  std::uint64_t used(CUmemoryPool pool) const {
    cuuint64_t bytes = 7;
    must(CU(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes));
    return bytes;
  }
};

TEST_F(FakeCudaPool, GivesAndTakesMemoryInTheOrderOfStreams) {
  start({{"FAKE_CUDA_DELAY_US", "200"}});
  const CUstream first = make_stream(), second = make_stream();
  const CUfunction add = kernel("test_add");
  for (int i = 0; i < 5; ++i) {
    const CUdeviceptr memory = allocate_in(first, 4096);
    must(CU(cuMemsetD32Async)(memory, 7, 1024, first));
    order(first, second);
    must(launch(add, memory, memory, 1024, second));
    EXPECT_EQ(words_at(memory, 1024, second), std::vector<std::uint32_t>(1024, 14));
    must(CU(cuMemFreeAsync)(memory, second));
  }
  must(CU(cuCtxSynchronize)());
  EXPECT_EQ(live("memory"), 0U);
  EXPECT_EQ(used(default_pool()), 0U);
  EXPECT_EQ(misuses(), 0U) << last_misuse();
}

TEST_F(FakeCudaPool, FailsCommandsThatRunBeforeTheAllocation) {
  start();
  std::uint32_t* gate = allocate_host(1);
  const CUstream first = make_stream(), second = make_stream();
  hold(first, gate);
  const CUdeviceptr memory = allocate_in(first, 64);
  must(CU(cuMemsetD8Async)(memory, 7, 64, second));
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
    hold(stream, gate);
    must(CU(cuMemFreeAsync)(memory, stream));
    EXPECT_EQ(CU(cuMemFreeAsync)(memory, stream), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(CU(cuMemFree)(memory), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(is_kernel ? launch(add, memory, memory, 16, stream)
                        : CU(cuMemsetD8Async)(memory, 7, 64, stream),
              CUDA_SUCCESS);
    open(gate);
    EXPECT_EQ(CU(cuStreamSynchronize)(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  }
}

TEST_F(FakeCudaPool, IsKnownByPointerAttributesAndCannotBeSharedByIpc) {
  start();
  const CUstream stream = make_stream();
  const CUdeviceptr memory = allocate_in(stream, 64);
  const auto pool = attribute<CUmemoryPool>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory);
  EXPECT_EQ(pool, default_pool());
  EXPECT_EQ(attribute<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, memory), nullptr);
  EXPECT_EQ(attribute<int>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, memory), 0);
  CUipcMemHandle handle;
  EXPECT_EQ(CU(cuIpcGetMemHandle)(&handle, memory), CUDA_ERROR_INVALID_VALUE);
  must(CU(cuMemFree)(memory));
  EXPECT_EQ(used(pool), 0U);
}

TEST_F(FakeCudaPool, IsAccessedByOtherDevicesOnlyIfTheyWereGivenAccess) {
  start({{"FAKE_CUDA_DEVICES", "2"}});
  const CUcontext peer = retain(1);
  const CUdeviceptr memory = allocate_in(nullptr, 64);
  must(CU(cuCtxSynchronize)());
  must(CU(cuCtxSetCurrent)(peer));
  must(CU(cuCtxEnablePeerAccess)(context(), 0));
  EXPECT_EQ(CU(cuMemsetD8Async)(memory, 7, 64, nullptr), CUDA_ERROR_INVALID_VALUE);
  CUmemLocation there = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  const CUmemAccessDesc access = {there, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  auto flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  must(CU(cuMemPoolGetAccess)(&flags, default_pool(), &there));
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  must(CU(cuMemPoolSetAccess)(default_pool(), &access, 1));
  must(CU(cuMemPoolGetAccess)(&flags, default_pool(), &there));
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  must(CU(cuMemsetD8Async)(memory, 7, 64, nullptr));
  must(CU(cuCtxSynchronize)());
}

TEST_F(FakeCudaPool, CanBeMadeAndTakeThePlaceOfTheDefault) {
  start({{"FAKE_CUDA_MEMORY_MB", "1"}});
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool pool = nullptr;
  CUmemoryPool now = nullptr;
  must(CU(cuMemPoolCreate)(&pool, &properties));
  must(CU(cuDeviceSetMemPool)(0, pool));
  must(CU(cuDeviceGetMemPool)(&now, 0));
  EXPECT_EQ(now, pool);
  cuuint64_t threshold = 1 << 20;
  must(CU(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  const CUstream stream = make_stream();
  const CUdeviceptr memory = allocate_in(stream, 1 << 20);
  EXPECT_EQ(used(pool), 1U << 20);
  EXPECT_EQ(used(default_pool()), 0U);
  CUdeviceptr more = 0;
  EXPECT_EQ(CU(cuMemAllocFromPoolAsync)(&more, 64, default_pool(), stream),
            CUDA_ERROR_OUT_OF_MEMORY);
  must(CU(cuMemPoolDestroy)(pool));
  EXPECT_EQ(CU(cuMemPoolDestroy)(pool), CUDA_ERROR_INVALID_VALUE);
  must(CU(cuMemFreeAsync)(memory, stream));
  must(CU(cuStreamSynchronize)(stream));
  allocate_in(stream, 64);
  EXPECT_EQ(used(default_pool()), 64U);
}

TEST_F(FakeCudaPool, CannotBeCaptured) {
  start();
  const CUstream stream = make_stream();
  must(CU(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUdeviceptr address = 0;
  EXPECT_EQ(CU(cuMemAllocAsync)(&address, 64, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CUgraph graph = nullptr;
  EXPECT_EQ(CU(cuStreamEndCapture)(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

}  // namespace
}  // namespace xylem::fake_cuda::test
