// SPDX-License-Identifier: Apache-2.0
//
// Physical memory (cuMemCreate), which has no address until it is mapped. It is a memfd, and the
// memfd is also what is exported to other processes. Behind the memory the file has a page that
// says what the memory is, for the process that imports it.
#pragma once

#include "fakes/cuda_driver/cuda_api.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace xylem::fake_cuda {

/// So much of new device memory is filled with a pattern, since CUDA does not clear memory either.
inline constexpr std::size_t kMostPattern = 1 << 20;
inline constexpr unsigned char kPattern = 0xa5;

struct Physical {
  Physical() = default;
  Physical(const Physical&) = delete;
  Physical& operator=(const Physical&) = delete;
  ~Physical();

  CUmemGenericAllocationHandle handle = 0;
  int file = -1;
  std::size_t bytes = 0;
  CUmemAllocationProp properties = {};
  bool is_imported = false;
  std::uint64_t block_id = 0;
  unsigned references = 0;  ///< Of its handle.
  unsigned mappings = 0;
};

/// Returns nullptr if the system has no memory.
std::shared_ptr<Physical> make_physical(std::size_t bytes, const CUmemAllocationProp& properties);

/// Returns nullptr if `file`, which stays the caller's, is not one of make_physical().
std::shared_ptr<Physical> import_physical(int file);

}  // namespace xylem::fake_cuda
