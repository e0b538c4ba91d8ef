// SPDX-License-Identifier: Apache-2.0
//
// The device memory that allocate_on_cuda() has allocated in this process.
#pragma once

#include "cuda/driver.h"
#include "xylem/base/mutex.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

namespace xylem::execution::cuda {

/// Any thread may call these functions. The list belongs to the process, since memory may outlive
/// all jobs.
class Allocations {
 public:
  static Allocations& of_process() noexcept;

  Result<void*> add(std::shared_ptr<const Driver> driver, int device, std::uint64_t bytes);
  /// Frees memory that add() returned. Returns nullopt, and does nothing, if add() did not return
  /// this memory.
  std::optional<Status> remove(void* memory);

 private:
  struct Owner {
    std::shared_ptr<const Driver> driver;
    CUdevice device = 0;
    CUcontext context = nullptr;  ///< The device's primary context, retained until remove().
  };

  Mutex mutex_;
  std::unordered_map<void*, Owner> owners_ XYLEM_LOCKING(guarded_by(mutex_));
};

}  // namespace xylem::execution::cuda
