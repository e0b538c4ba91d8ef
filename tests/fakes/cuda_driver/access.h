// SPDX-License-Identifier: Apache-2.0
//
// The memory that a command uses. It is looked up when the command is issued, and held until the
// command has run.
#pragma once

#include "fakes/cuda_driver/call.h"

#include <cstddef>
#include <memory>
#include <vector>

namespace xylem::fake_cuda {

struct Place {
  AllocationPtr allocation;   ///< nullptr for pageable host memory.
  std::byte* view = nullptr;  ///< Where the host can touch the bytes.
  /// The mappings of which the place also has bytes, and one view of them all.
  std::vector<AllocationPtr> further;
  std::shared_ptr<void> joined;

  bool is_pageable() const noexcept { return allocation == nullptr; }
  bool is_host() const noexcept { return is_pageable() || allocation->is_on_host(); }
  bool is_synchronous() const noexcept { return !is_pageable() && allocation->sync_memops != 0; }
};

enum class Pageable { allowed, refused };
enum class Peers {
  need_access,  ///< Access must have been enabled by cuCtxEnablePeerAccess.
  any,          ///< The driver copies through other memory if there is no access.
};

/// Finds `bytes` bytes at `address` for commands of `device`. On failure the call has failed.
Place find_place(Call& call,
                 const Device& device,
                 const void* address,
                 std::size_t bytes,
                 Pageable pageable,
                 Peers peers = Peers::need_access);

/// Called by a command before it uses `place`. If the memory was freed after the command was
/// issued, returns false, counts a misuse and makes the device lost.
bool is_still_there(const Run& run, const Place& place);

}  // namespace xylem::fake_cuda
