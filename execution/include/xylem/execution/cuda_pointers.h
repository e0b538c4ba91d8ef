// SPDX-License-Identifier: Apache-2.0
//
// CudaPointers: finds out by a query of the CUDA driver whether an address lies in host memory or
// in the memory of a CUDA device. It queries the driver only if the driver is already loaded in
// this process, by Xylem or by other code. This header includes nothing of CUDA.
//
// Each call of the user checks whether the driver is loaded, so this check must be cheap on
// machines without the driver. The dynamic loader keeps a list of the loaded libraries, and appends
// each new library. When CudaPointers looks for the driver, it takes a reference to the last
// library of the list. As long as this library has no successor, no library has been loaded since,
// so the driver is still not loaded. Because of the reference, this library stays loaded until
// CudaPointers is destroyed, even if the application closes it.
#pragma once

#include "xylem/base/memory.h"

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>

// From <link.h>: the entry of one library in the dynamic loader's list.
struct link_map;  // NOLINT(readability-identifier-naming)

namespace xylem::execution {

/// Stands for the memory of an address for which the driver's query fails, for example after the
/// loss of a device. No call accepts such memory. The host must not access it, since it may be
/// memory of a device.
inline constexpr Memory kQueryFailed{MemoryKind::cuda, std::numeric_limits<std::int32_t>::min()};

/// The driver's answer to the query about an address.
struct CudaPointer {
  /// Host memory, memory of a CUDA device, or kQueryFailed. Managed memory counts as memory of
  /// the device on which it was allocated.
  Memory memory{};
  bool is_pinned = false;  ///< True for host memory that every CUDA device can access.
};

/// Finds out in which memory an address lies. Any thread may call these functions.
class CudaPointers {
 public:
  CudaPointers();
  CudaPointers(const CudaPointers&) = delete;
  CudaPointers& operator=(const CudaPointers&) = delete;
  ~CudaPointers();

  /// True if the driver is loaded in this process, even if it was loaded after this object was
  /// made. False if Xylem is built without CUDA. Takes a lock only if libraries may have been
  /// loaded since the last call.
  bool is_driver_loaded() noexcept {
    if (is_driver_loaded_.load(std::memory_order_acquire)) return true;
    link_map** const next = after_last_.load(std::memory_order_acquire);
    if (next != nullptr && std::atomic_ref(*next).load(std::memory_order_relaxed) == nullptr) {
      return false;
    }
    return look_for_driver();
  }

  /// Queries the driver. If no driver is loaded, or if nobody has called cuInit() yet, each address
  /// counts as host memory. Creates no context.
  CudaPointer find(const void* address) noexcept;

 private:
  class Loaded;

  bool look_for_driver() noexcept;

  std::atomic<bool> is_driver_loaded_ = false;  ///< Never changes back to false.
  /// The address of the successor pointer in the entry of the last library. Null if the last
  /// library is not known.
  std::atomic<link_map**> after_last_ = nullptr;
  const std::unique_ptr<Loaded> loaded_;
};

}  // namespace xylem::execution
