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

/// Whether an address may be memory of a device although the driver does not know it. Before
/// cuInit() and without a context there is no such memory, and of an unknown address the driver may
/// say that it is not valid.
bool can_be_on_device(CUresult why) noexcept {
  return why != CUDA_ERROR_NOT_INITIALIZED && why != CUDA_ERROR_INVALID_CONTEXT &&
         why != CUDA_ERROR_NO_DEVICE && why != CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

/// What is known of the libraries of the process.
class CudaPointers::Loaded {
 public:
  Mutex mutex;
  cuda::LastLibrary last XYLEM_LOCKING(guarded_by(mutex));
  decltype(&::cuPointerGetAttributes) ask = nullptr;  ///< Set before is_driver_loaded_ is.
};

CudaPointers::CudaPointers() : loaded_(std::make_unique<Loaded>()) {}
CudaPointers::~CudaPointers() = default;

bool CudaPointers::look_for_driver() noexcept {
  const Lock lock(loaded_->mutex);
  if (is_driver_loaded_.load(std::memory_order_relaxed)) return true;
  // In this order: a driver that is loaded after this line follows that library.
  link_map* const last = loaded_->last.hold();
  // Never closed, as the driver that Xylem opens itself.
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
  // Large enough for whatever the driver takes for a boolean.
  std::uint64_t is_managed = 0;
  std::uint32_t type = 0;
  int device = -1;
  std::array attributes{CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  std::array<void*, 3> values{&type, &is_managed, &device};
  static_assert(attributes.size() == values.size());
  const CUresult result = loaded_->ask(attributes.size(), attributes.data(), values.data(),
                                       reinterpret_cast<CUdeviceptr>(address));
  if (result != CUDA_SUCCESS)
    return {can_be_on_device(result) ? kUnknownToDriver : Memory{}, false};
  if (is_managed != 0 || type == CU_MEMORYTYPE_DEVICE) return {{MemoryKind::cuda, device}, false};
  return {{}, type == CU_MEMORYTYPE_HOST};
}

}  // namespace xylem::execution
