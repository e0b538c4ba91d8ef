// SPDX-License-Identifier: Apache-2.0
//
// Physical memory (cuMemCreate), which has no address until it is mapped. It is a memfd, which is
// exported to other processes. In the file, a page after the memory describes the memory for a
// process that imports it.
#pragma once

#include "fakes/cuda_driver/cuda_api.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace xylem::fake_cuda {

/// Size of the part of new device memory that is filled with a pattern. CUDA does not clear memory,
/// either.
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
  unsigned references = 0;  ///< References of its handle.
  unsigned mappings = 0;
};

/// Returns nullptr if the system has no memory.
std::shared_ptr<Physical> make_physical(std::size_t bytes, const CUmemAllocationProp& properties);

/// Returns nullptr if `file` is not a file of make_physical(). The caller keeps the ownership of
/// `file`.
std::shared_ptr<Physical> import_physical(int file);

}  // namespace xylem::fake_cuda
