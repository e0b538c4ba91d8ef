// SPDX-License-Identifier: Apache-2.0
//
// The stand-in for the CUDA driver: virtual memory management.
#include "unit/fake_cuda_processes.h"

#include <fcntl.h>

namespace xylem::fake_cuda::test {
namespace {

constexpr std::size_t kGranule = std::size_t{2} << 20;

class FakeCudaVirtual : public FakeCudaProcesses {
 protected:
  static CUmemAllocationProp properties(int device = 0) {
    CUmemAllocationProp of = {};
    of.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    of.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    of.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return of;
  }
  CUmemGenericAllocationHandle create(std::size_t bytes, int device = 0) const {
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp of = properties(device);
    must(CU(cuMemCreate)(&handle, bytes, &of, 0));
    return handle;
  }
  CUdeviceptr reserve(std::size_t bytes) const {
    CUdeviceptr address = 0;
    must(CU(cuMemAddressReserve)(&address, bytes, 0, 0, 0));
    return address;
  }
  CUresult set_access(CUdeviceptr address,
                      std::size_t bytes,
                      int device = 0,
                      CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) const {
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
    return CU(cuMemSetAccess)(address, bytes, &access, 1);
  }
  /// Maps new memory of a device, and makes it accessible to this device.
  void map(CUdeviceptr address, std::size_t bytes = kGranule, int device = 0) const {
    const CUmemGenericAllocationHandle handle = create(bytes, device);
    must(CU(cuMemMap)(address, bytes, 0, handle, 0));
    must(CU(cuMemRelease)(handle));
    must(set_access(address, bytes, device));
  }
  /// Maps the memory of a handle, and makes it accessible to the first device.
  void map_handle(CUdeviceptr address, CUmemGenericAllocationHandle handle) const {
    must(CU(cuMemMap)(address, kGranule, 0, handle, 0));
    must(set_access(address, kGranule));
  }
  CUresult import_from(int file, CUmemGenericAllocationHandle& handle) const {
    return CU(cuMemImportFromShareableHandle)(
        &handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(file)),
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  }
  CUresult export_to(int& file, CUmemGenericAllocationHandle handle) const {
    return CU(cuMemExportToShareableHandle)(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                            0);
  }
};

TEST_F(FakeCudaVirtual, MemoryFaultsWhenTheHostTouchesIt) {
  start();
  const CUdeviceptr address = reserve(2 * kGranule);
  EXPECT_EQ(address % kGranule, 0U);
  map(address + kGranule);
  EXPECT_DEATH(*reinterpret_cast<volatile char*>(address + kGranule) = 1, "");
  EXPECT_DEATH(*reinterpret_cast<volatile char*>(address) = 1, "");
  must(CU(cuMemUnmap)(address + kGranule, kGranule));
  must(CU(cuMemAddressFree)(address, 2 * kGranule));
  EXPECT_DEATH(*reinterpret_cast<volatile char*>(address + kGranule) = 1, "");
}

TEST_F(FakeCudaVirtual, MemoryIsReachedByCommands) {
  start();
  const CUdeviceptr address = reserve(2 * kGranule);
  map(address + kGranule);
  must(CU(cuMemsetD32Async)(address + kGranule, 7, 1024, nullptr));
  must(launch(kernel("test_add"), address + kGranule, address + kGranule, 1024, nullptr));
  must(CU(cuStreamWriteValue32)(nullptr, address + kGranule, 3, 0));
  std::vector<std::uint32_t> expected(1024, 14);
  expected[0] = 3;
  EXPECT_EQ(words_at(address + kGranule, 1024), expected);
  must(CU(cuMemUnmap)(address + kGranule, kGranule));
  must(CU(cuMemAddressFree)(address, 2 * kGranule));
  EXPECT_EQ(live("physical") + live("mapping") + live("reservation"), 0U);
  EXPECT_EQ(misuses(), 0U) << last_misuse();
}

TEST_F(FakeCudaVirtual, MemoryIsNotZeroWhenItIsNew) {
  start();
  const CUdeviceptr address = reserve(kGranule);
  map(address);
  EXPECT_NE(*view(address), 0U);
}

TEST_F(FakeCudaVirtual, CommandsReachAcrossMappingsThatLieSideBySide) {
  start();
  const CUdeviceptr address = reserve(3 * kGranule);
  map(address);
  map(address + kGranule);
  const CUdeviceptr middle = address + kGranule - 64;
  must(CU(cuMemsetD32Async)(middle, 5, 32, nullptr));
  must(launch(kernel("test_add"), middle, middle, 32, nullptr));
  EXPECT_EQ(words_at(middle, 32), std::vector<std::uint32_t>(32, 10));
  EXPECT_EQ(*view(address + kGranule), 10U);
  EXPECT_EQ(misuses(), 0U) << last_misuse();
  // Nothing is mapped after the second mapping.
  EXPECT_EQ(CU(cuMemsetD8Async)(address, 0, 2 * kGranule + 1, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(misuses(), 1U);
}

TEST_F(FakeCudaVirtual, MemoryIsReachedOnlyByDevicesThatWereGivenAccess) {
  start({{"FAKE_CUDA_DEVICES", "2"}});
  const CUcontext peer = retain(1);
  const CUdeviceptr address = reserve(kGranule);
  const CUmemGenericAllocationHandle handle = create(kGranule);
  must(CU(cuMemMap)(address, kGranule, 0, handle, 0));
  EXPECT_EQ(CU(cuMemsetD8Async)(address, 0, 64, nullptr), CUDA_ERROR_INVALID_VALUE);
  must(set_access(address, kGranule));
  must(CU(cuMemsetD8Async)(address, 0, 64, nullptr));
  must(CU(cuCtxSynchronize)());  // Wait before the other device writes the same bytes.

  // Peer access between contexts applies only to memory of cuMemAlloc.
  must(CU(cuCtxPushCurrent)(peer));
  must(CU(cuCtxEnablePeerAccess)(context(), 0));
  EXPECT_EQ(CU(cuMemsetD8Async)(address, 0, 64, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(attribute<int>(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address),
            CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE);
  must(set_access(address, kGranule, 1));
  EXPECT_EQ(attribute<int>(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address),
            CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
  must(CU(cuMemsetD8Async)(address, 0, 64, nullptr));
  must(CU(cuCtxPopCurrent)(nullptr));
  unsigned long long flags = 7;
  const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  must(set_access(address, kGranule, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE));
  must(CU(cuMemGetAccess)(&flags, &here, address));
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  EXPECT_EQ(misuses(), 2U);
  must(launch(kernel("test_add"), address, address, 1, nullptr));
  EXPECT_EQ(CU(cuCtxSynchronize)(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(FakeCudaVirtual, MemoryIsDescribedByPointerAttributes) {
  start();
  const CUdeviceptr address = reserve(4 * kGranule);
  const CUdeviceptr mapping = address + kGranule;
  map(mapping, 2 * kGranule);
  const CUdeviceptr inside = mapping + 100;
  EXPECT_EQ(attribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside),
            unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(attribute<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, inside), nullptr);
  EXPECT_EQ(attribute<int>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside), 0);
  EXPECT_EQ(attribute<std::uint64_t>(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, inside),
            std::uint64_t{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR});
  EXPECT_EQ(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside), address);
  EXPECT_EQ(attribute<std::size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside), 4 * kGranule);
  EXPECT_EQ(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, inside), mapping);
  EXPECT_EQ(attribute<std::size_t>(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, inside), 2 * kGranule);
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  must(CU(cuMemGetAddressRange)(&base, &bytes, inside));
  EXPECT_EQ(base, mapping);
  EXPECT_EQ(bytes, 2 * kGranule);
  // Nothing is mapped at the start of the reservation.
  EXPECT_EQ(attribute<int>(CU_POINTER_ATTRIBUTE_MAPPED, inside), 1);
  EXPECT_EQ(attribute<int>(CU_POINTER_ATTRIBUTE_MAPPED, address), 0);
  EXPECT_EQ(attribute<std::size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, address), 4 * kGranule);
  EXPECT_EQ(CU(cuPointerGetAttribute)(&base, CU_POINTER_ATTRIBUTE_BUFFER_ID, address),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemGetAddressRange)(&base, &bytes, address), CUDA_ERROR_NOT_FOUND);
}

TEST_F(FakeCudaVirtual, AnAddressHasANewBufferIdWhenItIsMappedAgain) {
  start();
  const CUdeviceptr address = reserve(kGranule);
  map(address);
  const auto id = attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, address);
  const auto block = attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, address);
  must(CU(cuMemUnmap)(address, kGranule));
  map(address);
  EXPECT_NE(attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, address), id);
  EXPECT_NE(attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, address), block);
  must(CU(cuMemUnmap)(address, kGranule));
  must(CU(cuMemAddressFree)(address, kGranule));
  EXPECT_EQ(reserve(kGranule), address);
}

TEST_F(FakeCudaVirtual, MemoryLivesWhileItHasAHandleOrAMapping) {
  start({{"FAKE_CUDA_MEMORY_MB", "4"}});
  const CUdeviceptr address = reserve(2 * kGranule);
  const CUmemGenericAllocationHandle handle = create(2 * kGranule);
  CUmemGenericAllocationHandle other = 0;
  const CUmemAllocationProp of = properties();
  EXPECT_EQ(CU(cuMemCreate)(&other, kGranule, &of, 0), CUDA_ERROR_OUT_OF_MEMORY);
  must(CU(cuMemMap)(address, 2 * kGranule, 0, handle, 0));
  must(CU(cuMemRelease)(handle));
  EXPECT_EQ(CU(cuMemRelease)(handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(live("physical"), 1U);
  must(CU(cuMemRetainAllocationHandle)(&other, reinterpret_cast<void*>(address + 100)));
  EXPECT_EQ(other, handle);
  must(CU(cuMemUnmap)(address, 2 * kGranule));
  CUmemAllocationProp now = {};
  must(CU(cuMemGetAllocationPropertiesFromHandle)(&now, handle));
  EXPECT_EQ(now.requestedHandleTypes, of.requestedHandleTypes);
  must(CU(cuMemRelease)(handle));
  EXPECT_EQ(live("physical"), 0U);
  EXPECT_EQ(CU(cuMemRetainAllocationHandle)(&other, reinterpret_cast<void*>(address)),
            CUDA_ERROR_INVALID_VALUE);
  std::size_t free = 0;
  std::size_t total = 0;
  must(CU(cuMemGetInfo)(&free, &total));
  EXPECT_EQ(free, total);
  EXPECT_EQ(misuses(), 1U) << last_misuse();
}

TEST_F(FakeCudaVirtual, RefusesRangesThatAreNotThoseThatWereMade) {
  start();
  const CUdeviceptr address = reserve(4 * kGranule);
  const CUmemGenericAllocationHandle handle = create(2 * kGranule);
  const auto map_at = [&](CUdeviceptr at, std::size_t bytes, std::size_t offset = 0) {
    return CU(cuMemMap)(at, bytes, offset, handle, 0);
  };
  EXPECT_EQ(map_at(address + 4096, kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(map_at(address, kGranule + 4096), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(map_at(address, 3 * kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(map_at(address, kGranule, kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(map_at(address + 3 * kGranule, 2 * kGranule), CUDA_ERROR_INVALID_VALUE);
  must(map_at(address, 2 * kGranule));
  EXPECT_EQ(map_at(address + kGranule, 2 * kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(set_access(address, 3 * kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemUnmap)(address, kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemAddressFree)(address, 4 * kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemFree)(address), CUDA_ERROR_INVALID_VALUE);
  CUipcMemHandle ipc;
  EXPECT_EQ(CU(cuIpcGetMemHandle)(&ipc, address), CUDA_ERROR_INVALID_VALUE);
  must(CU(cuMemUnmap)(address, 2 * kGranule));
  EXPECT_EQ(CU(cuMemsetD8Async)(address, 0, 1, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemAddressFree)(address, kGranule), CUDA_ERROR_INVALID_VALUE);
  must(CU(cuMemAddressFree)(address, 4 * kGranule));
  std::uint32_t word = 0;
  EXPECT_EQ(CU(cuMemcpyAsync)(address, on_device(&word), 4, nullptr), CUDA_ERROR_INVALID_VALUE);
  CUmemGenericAllocationHandle none = 0;
  CUmemAllocationProp of = properties();
  EXPECT_EQ(CU(cuMemCreate)(&none, kGranule + 1, &of, 0), CUDA_ERROR_INVALID_VALUE);
  of.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
  EXPECT_EQ(CU(cuMemCreate)(&none, kGranule, &of, 0), CUDA_ERROR_NOT_SUPPORTED);
}

TEST_F(FakeCudaVirtual, UnmappingWaitsForCommands) {
  start({{"FAKE_CUDA_DELAY_US", "2000"}});
  const CUdeviceptr address = reserve(kGranule);
  map(address);
  const CUstream stream = make_stream();
  for (int i = 0; i < 10; ++i) {
    must(CU(cuMemsetD32Async)(address, 7, kGranule / 4, stream));
  }
  must(CU(cuMemUnmap)(address, kGranule));
  must(CU(cuStreamQuery)(stream));
  EXPECT_EQ(misuses(), 0U) << last_misuse();
}

TEST_F(FakeCudaVirtual, MemoryIsSharedByADescriptor) {
  fork_peer([&] {
    start();
    const int file = receive_file();
    CUmemGenericAllocationHandle handle = 0;
    must(import_from(file, handle));
    close(file);
    const CUdeviceptr memory = reserve(kGranule);
    map_handle(memory, handle);
    must(CU(cuMemRelease)(handle));
    const CUstream stream = make_stream();
    must(CU(cuMemsetD32Async)(memory + 8, 7, 1024, stream));
    must(CU(cuStreamWriteValue64)(stream, memory, std::uint64_t{1} << 40, 0));
    must(CU(cuStreamSynchronize)(stream));
    must(CU(cuMemUnmap)(memory, kGranule));
    EXPECT_EQ(live("physical"), 0U);
    EXPECT_EQ(misuses(), 0U) << last_misuse();
  });
  start();
  const CUdeviceptr memory = reserve(kGranule);
  const CUmemGenericAllocationHandle handle = create(kGranule);
  map_handle(memory, handle);
  must(CU(cuMemsetD32Async)(memory, 0, 2, nullptr));
  must(CU(cuCtxSynchronize)());
  const CUstream stream = make_stream();
  must(CU(cuStreamWaitValue64)(stream, memory, std::uint64_t{1} << 40, 0));
  int file = -1;
  must(export_to(file, handle));
  send_file(file);
  close(file);
  EXPECT_EQ(words_at(memory + 8, 1024, stream), std::vector<std::uint32_t>(1024, 7));
  EXPECT_EQ(misuses(), 0U) << last_misuse();
  expect_success_of_peer();
}

TEST_F(FakeCudaVirtual, ImportsOnlyWhatWasExported) {
  start();
  const int file = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(import_from(file, handle), CUDA_ERROR_INVALID_VALUE);
  close(file);
  CUmemAllocationProp of = properties();
  of.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
  must(CU(cuMemCreate)(&handle, kGranule, &of, 0));
  int exported = -1;
  EXPECT_EQ(export_to(exported, handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(misuses(), 2U);
}

}  // namespace
}  // namespace xylem::fake_cuda::test
