// SPDX-License-Identifier: Apache-2.0
//
// CudaPointers: in which memory an address lies, as the CUDA driver knows it. The driver is asked
// only if it is loaded in this process already, by whomever. This header needs nothing of CUDA.
//
// Every call of the user asks whether the driver is loaded, so the answer must cost next to nothing
// where it is not. The dynamic loader keeps the libraries of the process in a list and appends new
// ones at its end. CudaPointers keeps a reference to the library that was the last one when it
// looked for the driver. As long as that library has no successor, no library was loaded since, and
// the driver is not there. The reference keeps that library in the process until this object ends,
// even if the program closes it.
#pragma once

#include "xylem/base/memory.h"

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>

// Of <link.h>: the loader's entry for one library.
struct link_map;  // NOLINT(readability-identifier-naming)

namespace xylem::execution {

/// The memory of an address for which the driver's query fails, as after the loss of a device. No
/// call can use it. The host must not touch it either, since it may be memory of a device.
inline constexpr Memory kUnknownToDriver{MemoryKind::cuda,
                                         std::numeric_limits<std::int32_t>::min()};

/// What the driver knows of an address.
struct CudaPointer {
  /// Memory of the host, or of a CUDA device, or kUnknownToDriver. Managed memory counts as memory
  /// of the device on which it was allocated.
  Memory memory{};
  bool is_pinned = false;  ///< Memory of the host that every CUDA device reaches.
};

/// All threads may call it.
class CudaPointers {
 public:
  CudaPointers();
  CudaPointers(const CudaPointers&) = delete;
  CudaPointers& operator=(const CudaPointers&) = delete;
  ~CudaPointers();

  /// True if the driver is loaded. It may be loaded after this object was made. No lock is taken,
  /// unless libraries were loaded since the last call. False if Xylem is built without CUDA.
  bool is_driver_loaded() noexcept {
    if (is_driver_loaded_.load(std::memory_order_acquire)) return true;
    link_map** const next = after_last_.load(std::memory_order_acquire);
    if (next != nullptr && std::atomic_ref(*next).load(std::memory_order_relaxed) == nullptr) {
      return false;
    }
    return look_for_driver();
  }

  /// Asks the driver. Without a driver, and before the program has called cuInit(), all memory is
  /// memory of the host. Makes no context.
  CudaPointer find(const void* address) noexcept;

 private:
  class Loaded;

  bool look_for_driver() noexcept;

  std::atomic<bool> is_driver_loaded_ = false;  ///< Stays true once it is.
  /// Where the entry of the last library points to its successor. Null: not known.
  std::atomic<link_map**> after_last_ = nullptr;
  const std::unique_ptr<Loaded> loaded_;
};

}  // namespace xylem::execution
