// SPDX-License-Identifier: Apache-2.0
//
// cuGetProcAddress: finds the functions of this driver by their plain names. The table contains the
// version of CUDA in which each function got its signature.
#include "fakes/cuda_driver/call.h"

#include <string_view>

namespace xylem::fake_cuda {
namespace {

struct Entry {
  std::string_view name;
  int since;
  void* function;
};

template <typename Function>
void* address_of(Function* function) {
  return reinterpret_cast<void*>(function);
}

/// The plain name as text, and the function to which the macros of cuda.h expand this name.
#define ENTRY(name, since) \
  Entry { #name, since, address_of(name) }

const Entry kEntries[] = {
    ENTRY(cuInit, 2000),
    ENTRY(cuDriverGetVersion, 2020),
    ENTRY(cuGetProcAddress, 12000),
    ENTRY(cuGetErrorName, 6000),
    ENTRY(cuGetErrorString, 6000),
    ENTRY(cuDeviceGet, 2000),
    ENTRY(cuDeviceGetCount, 2000),
    ENTRY(cuDeviceGetName, 2000),
    ENTRY(cuDeviceGetUuid, 11040),
    ENTRY(cuDeviceGetPCIBusId, 4010),
    ENTRY(cuDeviceGetAttribute, 2000),
    ENTRY(cuDeviceTotalMem, 3020),
    ENTRY(cuDeviceCanAccessPeer, 4000),
    ENTRY(cuDeviceGetP2PAttribute, 8000),
    ENTRY(cuDevicePrimaryCtxRetain, 7000),
    ENTRY(cuDevicePrimaryCtxRelease, 11000),
    ENTRY(cuDevicePrimaryCtxGetState, 7000),
    ENTRY(cuCtxPushCurrent, 4000),
    ENTRY(cuCtxPopCurrent, 4000),
    ENTRY(cuCtxSetCurrent, 4000),
    ENTRY(cuCtxGetCurrent, 4000),
    ENTRY(cuCtxGetDevice, 2000),
    ENTRY(cuCtxGetId, 12000),
    ENTRY(cuCtxSetFlags, 12010),
    ENTRY(cuCtxGetFlags, 7000),
    ENTRY(cuCtxSynchronize, 2000),
    ENTRY(cuCtxGetStreamPriorityRange, 5050),
    ENTRY(cuCtxEnablePeerAccess, 4000),
    ENTRY(cuCtxDisablePeerAccess, 4000),
    ENTRY(cuMemAlloc, 3020),
    ENTRY(cuMemAllocManaged, 6000),
    ENTRY(cuMemFree, 3020),
    ENTRY(cuMemGetInfo, 3020),
    ENTRY(cuMemGetAddressRange, 3020),
    ENTRY(cuMemRangeGetAttribute, 8000),
    ENTRY(cuMemAddressReserve, 10020),
    ENTRY(cuMemAddressFree, 10020),
    ENTRY(cuMemCreate, 10020),
    ENTRY(cuMemRelease, 10020),
    ENTRY(cuMemMap, 10020),
    ENTRY(cuMemUnmap, 10020),
    ENTRY(cuMemSetAccess, 10020),
    ENTRY(cuMemGetAccess, 10020),
    ENTRY(cuMemExportToShareableHandle, 10020),
    ENTRY(cuMemImportFromShareableHandle, 10020),
    ENTRY(cuMemGetAllocationGranularity, 10020),
    ENTRY(cuMemGetAllocationPropertiesFromHandle, 10020),
    ENTRY(cuMemRetainAllocationHandle, 11000),
    ENTRY(cuMemAllocAsync, 11020),
    ENTRY(cuMemAllocFromPoolAsync, 11020),
    ENTRY(cuMemFreeAsync, 11020),
    ENTRY(cuDeviceGetDefaultMemPool, 11020),
    ENTRY(cuDeviceGetMemPool, 11020),
    ENTRY(cuDeviceSetMemPool, 11020),
    ENTRY(cuMemPoolCreate, 11020),
    ENTRY(cuMemPoolDestroy, 11020),
    ENTRY(cuMemPoolSetAttribute, 11020),
    ENTRY(cuMemPoolGetAttribute, 11020),
    ENTRY(cuMemPoolTrimTo, 11020),
    ENTRY(cuMemPoolGetAccess, 11020),
    ENTRY(cuMemPoolSetAccess, 11020),
    ENTRY(cuMemPoolExportToShareableHandle, 11020),
    ENTRY(cuMemPoolImportFromShareableHandle, 11020),
    ENTRY(cuMemPoolExportPointer, 11020),
    ENTRY(cuMemPoolImportPointer, 11020),
    ENTRY(cuMemHostAlloc, 2020),
    ENTRY(cuMemFreeHost, 2000),
    ENTRY(cuMemHostRegister, 6050),
    ENTRY(cuMemHostUnregister, 4000),
    ENTRY(cuMemHostGetDevicePointer, 3020),
    ENTRY(cuPointerGetAttribute, 4000),
    ENTRY(cuPointerGetAttributes, 7000),
    ENTRY(cuPointerSetAttribute, 6000),
    ENTRY(cuMemcpyAsync, 4000),
    ENTRY(cuMemcpyDtoDAsync, 3020),
    ENTRY(cuMemcpyHtoDAsync, 3020),
    ENTRY(cuMemcpyDtoHAsync, 3020),
    ENTRY(cuMemcpyPeerAsync, 4000),
    ENTRY(cuMemcpy, 4000),
    ENTRY(cuMemcpyPeer, 4000),
    ENTRY(cuMemcpyDtoD, 3020),
    ENTRY(cuMemcpyHtoD, 3020),
    ENTRY(cuMemcpyDtoH, 3020),
    ENTRY(cuMemsetD8Async, 3020),
    ENTRY(cuMemsetD32Async, 3020),
    ENTRY(cuMemsetD8, 3020),
    ENTRY(cuStreamCreate, 2000),
    ENTRY(cuStreamCreateWithPriority, 5050),
    ENTRY(cuStreamDestroy, 4000),
    ENTRY(cuStreamGetId, 12000),
    ENTRY(cuStreamQuery, 2000),
    ENTRY(cuStreamSynchronize, 2000),
    ENTRY(cuStreamWaitEvent, 3020),
    ENTRY(cuStreamGetCtx, 9020),
    ENTRY(cuStreamGetPriority, 5050),
    ENTRY(cuStreamGetFlags, 5050),
    ENTRY(cuLaunchHostFunc, 10000),
    ENTRY(cuStreamAddCallback, 5000),
    ENTRY(cuEventCreate, 2000),
    ENTRY(cuEventDestroy, 4000),
    ENTRY(cuEventRecord, 2000),
    ENTRY(cuEventQuery, 2000),
    ENTRY(cuEventSynchronize, 2000),
    ENTRY(cuStreamWriteValue32, 11070),
    ENTRY(cuStreamWriteValue64, 11070),
    ENTRY(cuStreamWaitValue32, 11070),
    ENTRY(cuStreamWaitValue64, 11070),
    ENTRY(cuStreamBatchMemOp, 11070),
    ENTRY(cuStreamBeginCapture, 10010),
    ENTRY(cuStreamEndCapture, 10000),
    ENTRY(cuStreamIsCapturing, 10000),
    ENTRY(cuStreamGetCaptureInfo, 12030),
    {"cuStreamGetCaptureInfo", 11030, address_of(cuStreamGetCaptureInfo_v2)},
    ENTRY(cuThreadExchangeStreamCaptureMode, 10010),
    ENTRY(cuGraphGetNodes, 10000),
    ENTRY(cuGraphInstantiate, 12000),
    {"cuGraphInstantiateWithFlags", 11040, address_of(cuGraphInstantiate)},
    ENTRY(cuGraphUpload, 11010),
    ENTRY(cuGraphLaunch, 10000),
    ENTRY(cuGraphExecDestroy, 10000),
    ENTRY(cuGraphDestroy, 10000),
    ENTRY(cuLibraryLoadData, 12000),
    ENTRY(cuLibraryUnload, 12000),
    ENTRY(cuLibraryGetKernel, 12000),
    ENTRY(cuKernelGetFunction, 12000),
    ENTRY(cuFuncGetAttribute, 2020),
    ENTRY(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050),
    ENTRY(cuLaunchKernel, 4000),
    ENTRY(cuIpcGetMemHandle, 4010),
    ENTRY(cuIpcOpenMemHandle, 11000),
    ENTRY(cuIpcCloseMemHandle, 4010),
    ENTRY(cuIpcGetEventHandle, 4010),
    ENTRY(cuIpcOpenEventHandle, 4010),
};

#undef ENTRY

/// If several signatures of a function are known, returns the newest that `version` of CUDA has, or
/// otherwise the oldest. In the table, these are ordered from the newest to the oldest.
const Entry* find_entry(std::string_view name, int version) {
  const Entry* found = nullptr;
  for (const Entry& entry : kEntries) {
    if (entry.name != name) continue;
    found = &entry;
    if (entry.since <= version) break;
  }
  return found;
}

}  // namespace
}  // namespace xylem::fake_cuda

using namespace xylem::fake_cuda;  // NOLINT(google-build-using-namespace)

extern "C" {
// NVIDIA defines these names.
// NOLINTBEGIN(readability-identifier-naming)

// As in cuda.h, a missing function is no error: the address is NULL, and the status contains the
// reason. Versioned names such as cuMemAlloc_v2 are not found.
CUresult cuGetProcAddress(const char* name,
                          void** function,
                          int version,
                          cuuint64_t flags,
                          CUdriverProcAddressQueryResult* status) {
  Call call(__func__, Needs::nothing);
  if (call.has_failed() || !call.has(name, function)) return call.result();
  *function = nullptr;
  if (version > call.driver().settings.version) return call.fail(CUDA_ERROR_INVALID_VALUE);
  if ((flags & ~static_cast<cuuint64_t>(CU_GET_PROC_ADDRESS_LEGACY_STREAM)) != 0) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "the stand-in has no per-thread variants");
  }
  const Entry* entry = find_entry(name, version);
  auto result = CU_GET_PROC_ADDRESS_SUCCESS;
  if (entry == nullptr || entry->since > call.driver().settings.version) {
    result = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  } else if (entry->since > version) {
    result = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
  } else {
    *function = entry->function;
  }
  if (status != nullptr) *status = result;
  return CUDA_SUCCESS;
}

// NOLINTEND(readability-identifier-naming)
}  // extern "C"
