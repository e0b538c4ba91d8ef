// SPDX-License-Identifier: Apache-2.0
#include "xylem/execution/cuda_pointers.h"

#include "cuda/last_library.h"
#include "xylem/base/mutex.h"

#include <cuda.h>

#include <dlfcn.h>
#include <link.h>

#include <array>
#include <cstdint>

namespace xylem::execution {

namespace {

/// Whether an address may be device memory although its query has failed with `why`. Before
/// cuInit() and without a context there is no device memory, and CUDA_ERROR_INVALID_VALUE means
/// that the driver does not know the address.
bool can_be_on_device(CUresult why) noexcept {
  return why != CUDA_ERROR_NOT_INITIALIZED && why != CUDA_ERROR_INVALID_CONTEXT &&
         why != CUDA_ERROR_NO_DEVICE && why != CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

/// The last library of the loader's list, and the query function of the driver if it is loaded.
class CudaPointers::Loaded {
 public:
  Mutex mutex;
  cuda::LastLibrary last XYLEM_LOCKING(guarded_by(mutex));
  decltype(&::cuPointerGetAttributes) ask = nullptr;  ///< Set before is_driver_loaded_.
};

CudaPointers::CudaPointers() : loaded_(std::make_unique<Loaded>()) {}
CudaPointers::~CudaPointers() = default;

bool CudaPointers::look_for_driver() noexcept {
  const Lock lock(loaded_->mutex);
  if (is_driver_loaded_.load(std::memory_order_relaxed)) return true;
  // The order is important: first the last library, then the driver. If another thread loads the
  // driver in between, the driver follows that library in the list, and the next call of
  // is_driver_loaded() finds it.
  link_map* const last = loaded_->last.hold();
  // The driver is never closed (RTLD_NODELETE), as in Driver::open().
  void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  if (driver != nullptr) {
    loaded_->ask =
        reinterpret_cast<decltype(loaded_->ask)>(::dlsym(driver, "cuPointerGetAttributes"));
  }
  const bool is_loaded = loaded_->ask != nullptr;
  is_driver_loaded_.store(is_loaded, std::memory_order_release);
  after_last_.store(last == nullptr ? nullptr : &last->l_next, std::memory_order_release);
  return is_loaded;
}

CudaPointer CudaPointers::find(const void* address) noexcept {
  if (!is_driver_loaded()) return {};
  // Large enough for a boolean of any size that the driver may write.
  std::uint64_t is_managed = 0;
  std::uint32_t type = 0;
  int device = -1;
  std::array attributes{CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  std::array<void*, 3> values{&type, &is_managed, &device};
  static_assert(attributes.size() == values.size());
  const CUresult result = loaded_->ask(attributes.size(), attributes.data(), values.data(),
                                       reinterpret_cast<CUdeviceptr>(address));
  if (result != CUDA_SUCCESS) return {can_be_on_device(result) ? kQueryFailed : Memory{}, false};
  if (is_managed != 0 || type == CU_MEMORYTYPE_DEVICE) return {{MemoryKind::cuda, device}, false};
  return {{}, type == CU_MEMORYTYPE_HOST};
}

}  // namespace xylem::execution
