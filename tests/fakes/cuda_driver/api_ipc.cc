// SPDX-License-Identifier: Apache-2.0
//
// Memory of other processes. A handle names a descriptor of the exporting process, which the
// opening process reaches as /proc/PID/fd/N.
#include "fakes/cuda_driver/call.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>

namespace xylem::fake_cuda {
namespace {

static_assert(sizeof(IpcKey) <= sizeof(CUipcMemHandle));

std::uint64_t inode_of(int file) {
  struct stat status = {};
  return fstat(file, &status) == 0 ? status.st_ino : 0;
}

/// Returns a descriptor of the memory, or -1 if the process or its memory is gone.
int open_file(const IpcKey& key) {
  const std::string path = "/proc/" + std::to_string(key.pid) + "/fd/" + std::to_string(key.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0 || inode_of(file) == key.inode) return file;
  close(file);
  return -1;
}

/// A device opens its own memory, or that of a peer. Needs the flag to enable access, as CUDA does.
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

}  // namespace
}  // namespace xylem::fake_cuda

using namespace xylem::fake_cuda;  // NOLINT(google-build-using-namespace)

extern "C" {
// The names are NVIDIA's.
// NOLINTBEGIN(readability-identifier-naming)

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  Call call(__func__, Needs::context);
  if (call.has_failed() || !call.has(handle)) return call.result();
  if (!call.driver().settings.has_ipc) return call.fail(CUDA_ERROR_NOT_SUPPORTED);
  const AllocationPtr allocation = call.driver().memory.find(pointer(address));
  if (allocation == nullptr || allocation->kind != MemoryKind::device) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "only memory of cuMemAlloc can be exported");
  }
  IpcKey key;
  key.pid = getpid();
  key.file = allocation->file;
  key.inode = inode_of(allocation->file);
  key.bytes = allocation->bytes;
  key.device = allocation->device;
  // The handle stands for the whole allocation, and opens at its start.
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &key, sizeof key);
  return CUDA_SUCCESS;
}

// The exporting process cannot open its own handle. cuda.h does not say so, but drivers return
// CUDA_ERROR_INVALID_CONTEXT.
CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  Call call(__func__, Needs::context);
  if (call.has_failed() || !call.has(address)) return call.result();
  if (!call.driver().settings.has_ipc) return call.fail(CUDA_ERROR_NOT_SUPPORTED);
  if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "the flag to enable peer access is missing");
  }
  IpcKey key;
  std::memcpy(static_cast<void*>(&key), &handle, sizeof key);
  if (key.pid == getpid()) {
    return call.misuse(CUDA_ERROR_INVALID_CONTEXT, "this process exported the handle");
  }
  if (call.device_at(key.device) == nullptr) return call.result();
  if (const auto opened = call.driver().memory.find_opened(key, call.context().handle)) {
    ++opened->opens;
    *address = opened->start;
    return CUDA_SUCCESS;
  }
  return open_memory(call, key, address);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  Call call(__func__, Needs::context_even_if_lost);
  if (call.has_failed()) return call.result();
  const AllocationPtr allocation = call.driver().memory.find(pointer(address));
  if (allocation == nullptr || allocation->kind != MemoryKind::opened ||
      allocation->start != address) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "this was not opened, or was closed");
  }
  // CUDA does not promise to wait for commands, so commands that still use the memory then fail.
  if (--allocation->opens == 0) call.driver().memory.remove(allocation);
  return call.end();
}

CUresult cuIpcGetEventHandle(CUipcEventHandle*, CUevent) {
  Call call(__func__, Needs::context);
  return call.has_failed() ? call.result() : call.fail(CUDA_ERROR_NOT_SUPPORTED);
}

CUresult cuIpcOpenEventHandle(CUevent*, CUipcEventHandle) {
  Call call(__func__, Needs::context);
  return call.has_failed() ? call.result() : call.fail(CUDA_ERROR_NOT_SUPPORTED);
}

// NOLINTEND(readability-identifier-naming)
}  // extern "C"
