// SPDX-License-Identifier: Apache-2.0
//
// Libraries, kernels and launches.
#include "fakes/cuda_driver/call.h"
#include "fakes/cuda_driver/launch.h"

#include <algorithm>

namespace xylem::fake_cuda {
namespace {

constexpr unsigned kMostThreads = 1024;      ///< Threads of a block.
constexpr unsigned kMostShared = 48 * 1024;  ///< Bytes of shared memory of a block.

/// Finds a kernel by its function handle. As in CUDA, a CUkernel is accepted in place of a
/// CUfunction.
std::shared_ptr<Kernel> function(Call& call, CUfunction handle) {
  auto kernel = call.driver().kernels.find(reinterpret_cast<CUkernel>(handle));
  if (kernel == nullptr) {
    call.misuse(CUDA_ERROR_INVALID_HANDLE, "this is no kernel, or its library was unloaded");
  }
  return kernel;
}

/// Loads a kernel into the current context, if it is not loaded there. Waits until the device is
/// idle, and blocks the calls of other threads meanwhile.
CUresult load(Call& call, Kernel& kernel) {
  if (!kernel.loaded_in.insert(call.context().handle).second) return call.result();
  return call.hold_until_idle(call.device());
}

struct Shape {
  std::uint64_t x, y, z;
  std::uint64_t size() const noexcept { return x * y * z; }
};

bool is_valid(const Shape& grid, const Shape& block) {
  return grid.size() > 0 && block.size() > 0 && block.size() <= kMostThreads &&
         grid.x <= 0x7fffffff && grid.y <= 65535 && grid.z <= 65535 && block.z <= 64;
}

}  // namespace
}  // namespace xylem::fake_cuda

using namespace xylem::fake_cuda;  // NOLINT(google-build-using-namespace)

extern "C" {
// NVIDIA defines these names.
// NOLINTBEGIN(readability-identifier-naming)

// Accepts any image, and ignores its contents.
CUresult cuLibraryLoadData(CUlibrary* library,
                           const void* code,
                           CUjit_option*,
                           void**,
                           unsigned,
                           CUlibraryOption*,
                           void**,
                           unsigned) {
  Call call(__func__, Needs::start, DuringCapture::unsafe);
  if (call.has_failed() || !call.has(library, code)) return call.result();
  *library = call.driver().libraries.add(std::make_shared<int>());
  return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library) {
  Call call(__func__, Needs::start, DuringCapture::unsafe);
  if (call.has_failed()) return call.result();
  if (call.driver().libraries.find(library) == nullptr) {
    return call.misuse(CUDA_ERROR_INVALID_HANDLE, "this is no library, or it was unloaded");
  }
  call.driver().kernels.remove_if([&](const Kernel& kernel) { return kernel.library == library; });
  call.driver().libraries.remove(library);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  Call call(__func__, Needs::start);
  if (call.has_failed() || !call.has(kernel, name)) return call.result();
  if (call.driver().libraries.find(library) == nullptr) {
    return call.misuse(CUDA_ERROR_INVALID_HANDLE, "this is no library, or it was unloaded");
  }
  const auto* host = call.driver().find_kernel(name);
  if (host == nullptr) return call.fail(CUDA_ERROR_NOT_FOUND);
  *kernel = call.driver().kernels.add(std::make_shared<Kernel>(Kernel{host, library, {}}));
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction* handle, CUkernel kernel) {
  Call call(__func__, Needs::context);
  if (call.has_failed() || !call.has(handle)) return call.result();
  const auto as_function = reinterpret_cast<CUfunction>(kernel);
  const auto found = function(call, as_function);
  if (found == nullptr) return call.result();
  *handle = as_function;
  return load(call, *found);
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  Call call(__func__, Needs::context);
  if (call.has_failed() || !call.has(value)) return call.result();
  if (function(call, handle) == nullptr) return call.result();
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = kMostThreads; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 32; break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = 90; break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = kMostShared; break;
    default: *value = 0; break;
  }
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                     CUfunction handle,
                                                     int threads,
                                                     size_t shared_bytes) {
  Call call(__func__, Needs::context);
  if (call.has_failed() || !call.has(blocks)) return call.result();
  if (function(call, handle) == nullptr) return call.result();
  if (threads <= 0 || threads > static_cast<int>(kMostThreads) || shared_bytes > kMostShared) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "no block has this size");
  }
  *blocks = std::min(32, 2048 / threads);
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction handle,
                        unsigned grid_x,
                        unsigned grid_y,
                        unsigned grid_z,
                        unsigned block_x,
                        unsigned block_y,
                        unsigned block_z,
                        unsigned shared_bytes,
                        CUstream stream_handle,
                        void** parameters,
                        void** extra) {
  Call call(__func__, Needs::context);
  if (call.has_failed()) return call.result();
  const auto kernel = function(call, handle);
  if (kernel == nullptr) return call.result();
  const StreamPtr stream = call.stream(stream_handle);
  if (stream == nullptr) return call.result();
  if (stream->context != &call.context()) {
    return call.misuse(CUDA_ERROR_INVALID_HANDLE, "the stream is not of the current context");
  }
  const Shape grid{grid_x, grid_y, grid_z}, block{block_x, block_y, block_z};
  if (!is_valid(grid, block) || shared_bytes > kMostShared) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "no launch has this shape");
  }
  if (extra != nullptr || parameters == nullptr || parameters[0] == nullptr) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "parameters have to be given as pointers to each");
  }
  if (stream->capture == nullptr && load(call, *kernel) != CUDA_SUCCESS) return call.result();
  const auto* parameter = static_cast<const std::byte*>(parameters[0]);
  Launch launch;
  call.count(kernel->host->name);
  launch.kernel = kernel->host;
  launch.parameters.assign(parameter, parameter + kernel->host->parameter_bytes);
  launch.blocks = grid.size();
  launch.threads = block.size();
  const bool waits = launch.kernel->waits != nullptr && launch.kernel->waits(parameters);
  enqueue(
      call.driver(), *stream,
      [launch = std::move(launch)](const Run& run) { run_kernel(launch, run); }, {}, waits);
  return CUDA_SUCCESS;
}

// NOLINTEND(readability-identifier-naming)
}  // extern "C"
