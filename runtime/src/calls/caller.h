// SPDX-License-Identifier: Apache-2.0
//
// Caller: the rank that makes a call. find_memory(): finds out in which memory the buffers of a
// call are.
#pragma once

#include "wires/compute_devices.h"
#include "xylem/base/memory.h"
#include "xylem/runtime/types.h"

#include <cstdint>

namespace xylem::runtime {

/// The rank that makes a call, and the size of its communicator.
struct Caller {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  /// The devices in whose memory the buffers of the call may be. Null: only host memory is allowed.
  const ComputeDevices* devices = nullptr;
};

namespace detail {

/// Whether the driver must be asked where a buffer is. This includes CUDA managed memory, which the
/// driver reports as memory of the device on which it was allocated.
inline bool must_be_found(const Memory& memory) noexcept {
  return memory.kind == MemoryKind::unknown || memory.kind == MemoryKind::cuda_managed;
}

template <typename AnyBuffer>
void query_memory(const ComputeDevices& devices, AnyBuffer& buffer) {
  if (buffer.data != nullptr && must_be_found(buffer.memory)) {
    buffer.memory = devices.find(buffer.data).memory;
  }
}

}  // namespace detail

/// Sets the memory of the buffer of a send or receive, if the user has not stated it.
template <typename AnyBuffer>
void find_memory(const Caller& caller, AnyBuffer& buffer) {
  if (caller.devices != nullptr && caller.devices->may_find()) {
    detail::query_memory(*caller.devices, buffer);
  }
  if (buffer.memory.kind == MemoryKind::unknown) buffer.memory = Memory{};
}

/// Sets the memory of the buffers of a collective, if the user has not stated it. A null buffer
/// gets the memory of the other buffer. Inline, since even the smallest calls execute this
/// function.
inline void find_memory(const Caller& caller, ConstBuffer& input, Buffer& output) {
  const auto is_unknown = [](const auto& buffer) {
    return buffer.memory.kind == MemoryKind::unknown;
  };
  if (caller.devices != nullptr && caller.devices->may_find()) {
    detail::query_memory(*caller.devices, input);
    detail::query_memory(*caller.devices, output);
    if (is_unknown(input)) input.memory = output.memory;
    if (is_unknown(output)) output.memory = input.memory;
  }
  if (is_unknown(input)) input.memory = Memory{};
  if (is_unknown(output)) output.memory = Memory{};
}

}  // namespace xylem::runtime
