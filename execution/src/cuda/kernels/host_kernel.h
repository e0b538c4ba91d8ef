// SPDX-License-Identifier: Apache-2.0
//
// The device kernels compiled for the host, so that they can be tested on machines without a GPU. A
// shared library exports xylem_host_kernels(); the stand-in of the CUDA driver
// (tests/fakes/cuda_driver) loads the library that FAKE_CUDA_KERNELS names, and finds kernels there
// by name.
#pragma once

#include <cstddef>
#include <cstdint>

namespace xylem::execution::cuda {

/// A block of a launch, and how its threads access memory: the addresses in a kernel's parameters
/// are device addresses, which the host must not access. The stand-in runs the threads of a block,
/// and the blocks of a launch, one after another, blocks in any order.
struct HostBlock {
  std::uint64_t index = 0;
  std::uint64_t blocks = 1;   ///< Of the launch.
  std::uint64_t threads = 1;  ///< Of the block.
  bool is_first = true;       ///< No block of the launch has run before.

  /// Translates a device address to a host address, which is valid for the rest of the allocation,
  /// too. Call this only for addresses that the block accesses: if the device cannot access the
  /// address, the launch fails with CUDA_ERROR_ILLEGAL_ADDRESS. In this case reach() returns dummy
  /// memory, and the kernel continues as usual.
  void* (*reach)(const void* device_address) = nullptr;
  /// The same for `bytes` bytes to which the launch writes. If they are in memory of another device
  /// or process, others see what is written there only when all blocks that may write it, which are
  /// all of the launch if `by_all`, have called fence().
  void* (*reach_target)(const void* device_address, std::size_t bytes, bool by_all) = nullptr;
  /// Makes what the block has written visible (reach_target, clear), and lets it read memory of
  /// other devices again (await).
  void (*fence)() = nullptr;
  /// Writes 0 to a word, which others may not see before the next fence().
  void (*clear)(std::uint32_t* host_address) = nullptr;
  /// Blocks until the word is not 0, and returns it; ~0 if the launch must end. Until the next
  /// fence(), the block must not access memory of other devices or processes.
  std::uint32_t (*await)(const std::uint32_t* host_address) = nullptr;

  /// Calls f(first, stride) for each thread, whose elements are first, first + stride, …
  template <class F>
  void each_place(F&& f) const {
    for (std::uint64_t k = 0; k < threads; ++k) f(index * threads + k, blocks * threads);
  }
};

struct HostKernel {
  const char* name = nullptr;
  /// The size of the kernel's only parameter, a struct. A launch copies this many bytes, as a
  /// launch on a device copies the parameters.
  std::size_t parameter_bytes = 0;
  /// Runs a block. `parameters` is as in cuLaunchKernel: one pointer to each parameter.
  void (*run)(void** parameters, const HostBlock& block) = nullptr;
  /// Whether a launch waits for other devices. Null if the kernel never does.
  bool (*waits)(void** parameters) = nullptr;
};

/// All kernels of the library; `count` is set to their number.
extern "C" const HostKernel* xylem_host_kernels(std::size_t* count);

}  // namespace xylem::execution::cuda
