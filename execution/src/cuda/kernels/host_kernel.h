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

/// The elements of a launch that one thread computes: first, first + stride, … Also, how the thread
/// accesses memory: the addresses in a kernel's parameters are device addresses, which the host
/// must not access.
struct HostPlace {
  std::uint64_t first = 0;
  std::uint64_t stride = 1;
  /// Translates a device address to a host address, which is valid for the rest of the allocation,
  /// too. Call this only for addresses that the thread accesses: if the device cannot access the
  /// address, the launch fails with CUDA_ERROR_ILLEGAL_ADDRESS. In this case reach() returns dummy
  /// memory, and the kernel continues as usual.
  void* (*reach)(const void* device_address) = nullptr;
};

struct HostKernel {
  const char* name = nullptr;
  /// The size of the kernel's only parameter, a struct. A launch copies this many bytes, as a
  /// launch on a device copies the parameters.
  std::size_t parameter_bytes = 0;
  /// `parameters` is as in cuLaunchKernel: one pointer to each parameter.
  void (*run)(void** parameters, const HostPlace& place) = nullptr;
};

/// All kernels of the library; `count` is set to their number.
extern "C" const HostKernel* xylem_host_kernels(std::size_t* count);

}  // namespace xylem::execution::cuda
