// SPDX-License-Identifier: Apache-2.0
//
// The memory that a command uses. It is looked up when the command is issued, and kept until the
// command has run.
#pragma once

#include "fakes/cuda_driver/call.h"

#include <cstddef>
#include <memory>
#include <vector>

namespace xylem::fake_cuda {

struct Place {
  AllocationPtr allocation;   ///< nullptr for pageable host memory.
  std::byte* view = nullptr;  ///< The address at which the host can access the bytes.
  /// If the bytes extend beyond the first mapping: the other mappings, and a contiguous view of
  /// all.
  std::vector<AllocationPtr> further;
  std::shared_ptr<void> joined;

  bool is_pageable() const noexcept { return allocation == nullptr; }
  bool is_host() const noexcept { return is_pageable() || allocation->is_on_host(); }
  bool is_synchronous() const noexcept { return !is_pageable() && allocation->sync_memops != 0; }
};

enum class Pageable { allowed, refused };
enum class Peers {
  need_access,  ///< cuCtxEnablePeerAccess must have enabled access.
  any,          ///< Without peer access, the driver copies through other memory.
};

/// Finds `bytes` bytes at `address` for commands of `device`. If this fails, `call` has failed.
Place find_place(Call& call,
                 const Device& device,
                 const void* address,
                 std::size_t bytes,
                 Pageable pageable,
                 Peers peers = Peers::need_access);

/// A command calls this before it uses `place`. If the memory was freed after the command was
/// issued, counts a misuse, makes the device lost and returns false.
bool is_still_there(const Run& run, const Place& place);

}  // namespace xylem::fake_cuda
