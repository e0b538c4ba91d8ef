// SPDX-License-Identifier: Apache-2.0
//
// Launches of the device kernels, compiled for the host.
#pragma once

#include "cuda/kernels/arguments.h"
#include "cuda/kernels/host_kernel.h"
#include "xylem/base/data_type.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace xylem::execution::cuda {

/// In these tests, a device address is the host's address plus kDeviceOffset.
constexpr std::uintptr_t kDeviceOffset = std::uintptr_t{1} << 62;

template <typename T>
T* device_address(T* host) {
  return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(host) + kDeviceOffset);
}
inline void* host_address(const void* device) {
  const auto address = reinterpret_cast<std::uintptr_t>(device);
  EXPECT_GE(address, kDeviceOffset) << "not a device address";
  return reinterpret_cast<void*>(address - kDeviceOffset);
}

inline std::span<const HostKernel> kernels() {
  std::size_t count = 0;
  const HostKernel* first = xylem_host_kernels(&count);
  return {first, count};
}

inline const HostKernel* find(std::string_view name) {
  const auto all = kernels();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const HostKernel& k) { return k.name == name; });
  return found == all.end() ? nullptr : &*found;
}

inline std::string reduce_name(RedOp op, DataType type) {
  const bool is_sum = op == RedOp::avg || op == RedOp::premul_sum;
  return "xylem_reduce_" + std::string(name(is_sum ? RedOp::sum : op)) + '_' +
         std::string(name(type));
}

/// Runs all blocks of a launch, in reverse order. Flags for which it waits must be set.
template <typename Arguments>
void launch(const std::string& name,
            Arguments arguments,
            std::uint64_t blocks,
            std::uint64_t threads = 1) {
  const HostKernel* kernel = find(name);
  ASSERT_NE(kernel, nullptr) << name;
  ASSERT_EQ(kernel->parameter_bytes, sizeof(Arguments));
  void* parameters[] = {&arguments};
  HostBlock block;
  block.blocks = blocks;
  block.threads = threads;
  block.reach = host_address;
  block.reach_target = [](const void* address, std::size_t, bool) { return host_address(address); };
  block.fence = [] {};
  block.clear = [](std::uint32_t* flag) { *flag = 0; };
  block.await = [](const std::uint32_t* flag) { return *flag; };
  for (block.index = blocks; block.index-- > 0;) {
    kernel->run(parameters, block);
    block.is_first = false;
  }
}

inline void launch_reduce(RedOp op,
                          DataType type,
                          void* target,
                          std::span<const void* const> sources,
                          std::size_t count,
                          std::uint32_t divisor,
                          std::uint64_t threads) {
  ReduceArguments arguments;
  arguments.target = device_address(target);
  arguments.count = count;
  arguments.source_count = static_cast<std::uint32_t>(sources.size());
  arguments.divisor = divisor;
  std::transform(sources.begin(), sources.end(), arguments.sources,
                 [](const void* source) { return device_address(source); });
  launch(reduce_name(op, type), arguments, threads);
}

}  // namespace xylem::execution::cuda
