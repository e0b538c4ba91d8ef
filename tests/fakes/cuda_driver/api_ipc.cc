// SPDX-License-Identifier: Apache-2.0
//
// CUDA IPC: memory of other processes.
#include "fakes/cuda_driver/call.h"
#include "fakes/cuda_driver/ipc.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>

namespace xylem::fake_cuda {
namespace {

/// The current device opens its own memory, or that of a peer. As in CUDA, the flag that enables
/// peer access is required.
CUresult open_memory(Call& call, const IpcKey& key, CUdeviceptr* address) {
  const int file = open_file(key);
  if (file < 0) return call.misuse(CUDA_ERROR_INVALID_HANDLE, "the memory is gone");
  const AllocationPtr allocation = call.driver().memory.add_opened(file, key);
  if (allocation == nullptr) return call.fail(CUDA_ERROR_MAP_FAILED);
  allocation->device = key.device;
  allocation->opened_by = call.device().ordinal;
  allocation->context = call.context().handle;
  allocation->opens = 1;
  *address = allocation->start;
  return CUDA_SUCCESS;
}

/// Waits while another process holds a lock of the file that FAKE_CUDA_OPEN_GATE names.
void wait_at_gate() {
  const char* const path = std::getenv("FAKE_CUDA_OPEN_GATE");
  if (path == nullptr) return;
  const int gate = ::open(path, O_RDONLY | O_CLOEXEC);
  if (gate < 0) return;
  ::flock(gate, LOCK_SH);
  ::close(gate);
}

}  // namespace
}  // namespace xylem::fake_cuda

using namespace xylem::fake_cuda;  // NOLINT(google-build-using-namespace)

extern "C" {
// NVIDIA defines these names.
// NOLINTBEGIN(readability-identifier-naming)

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  Call call(__func__, Needs::context);
  if (call.has_failed() || !call.has(handle)) return call.result();
  if (!call.driver().settings.has_ipc) return call.fail(CUDA_ERROR_NOT_SUPPORTED);
  const AllocationPtr allocation = call.driver().memory.find(pointer(address));
  if (allocation == nullptr || !allocation->is_ipc_capable()) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "only memory of cuMemAlloc can be exported");
  }
  IpcKey key = key_of(allocation->file);
  key.bytes = allocation->bytes;
  key.device = allocation->device;
  // A handle refers to the whole allocation, and is opened at the start of the allocation.
  give_key(key, *handle);
  return CUDA_SUCCESS;
}

// The exporting process cannot open its own handle. cuda.h does not say so, but drivers return
// CUDA_ERROR_INVALID_CONTEXT.
CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  wait_at_gate();  // Without the driver's mutex.
  Call call(__func__, Needs::context, DuringCapture::unsafe);
  if (call.has_failed() || !call.has(address)) return call.result();
  if (!call.driver().settings.has_ipc) return call.fail(CUDA_ERROR_NOT_SUPPORTED);
  if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "the flag to enable peer access is missing");
  }
  const IpcKey key = take_key(handle);
  if (key.pid == getpid()) {
    return call.misuse(CUDA_ERROR_INVALID_CONTEXT, "this process exported the handle");
  }
  if (call.device_at(key.device) == nullptr) return call.result();
  if (key.device != call.device().ordinal && !call.driver().settings.has_peer_access) {
    return call.fail(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  }
  if (const auto opened = call.driver().memory.find_opened(key, call.context().handle)) {
    ++opened->opens;
    *address = opened->start;
    return CUDA_SUCCESS;
  }
  return open_memory(call, key, address);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  Call call(__func__, Needs::context_even_if_lost, DuringCapture::unsafe);
  if (call.has_failed()) return call.result();
  const AllocationPtr allocation = call.driver().memory.find(pointer(address));
  if (allocation == nullptr || allocation->kind != MemoryKind::opened ||
      allocation->start != address) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "this was not opened, or was closed");
  }
  // CUDA does not promise that closing waits for commands, so commands that still use the memory
  // fail.
  if (--allocation->opens == 0) call.driver().memory.remove(allocation);
  return call.end();
}

// NOLINTEND(readability-identifier-naming)
}  // extern "C"
