// SPDX-License-Identifier: Apache-2.0
//
// The device memory that this process has allocated for its users.
#pragma once

#include "cuda/driver.h"
#include "xylem/base/mutex.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

namespace xylem::execution::cuda {

/// All threads may call it. The list belongs to the process, since memory may outlive all jobs.
class Allocations {
 public:
  static Allocations& of_process() noexcept;

  Result<void*> add(std::shared_ptr<const Driver> driver, int device, std::uint64_t bytes);
  /// Frees memory that add() returned. Empty if it is other memory.
  std::optional<Status> remove(void* memory);

 private:
  struct Owner {
    std::shared_ptr<const Driver> driver;
    CUdevice device = 0;
    CUcontext context = nullptr;  ///< The primary context of the device, which is kept.
  };

  Mutex mutex_;
  std::unordered_map<void*, Owner> owners_ XYLEM_LOCKING(guarded_by(mutex_));
};

}  // namespace xylem::execution::cuda
