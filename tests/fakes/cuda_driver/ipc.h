// SPDX-License-Identifier: Apache-2.0
//
// IPC handles. A handle names a descriptor of the exporting process, which the opening process
// reaches as /proc/PID/fd/N.
#pragma once

#include "fakes/cuda_driver/memory.h"

#include <cstring>

namespace xylem::fake_cuda {

/// The key of a descriptor of this process.
IpcKey key_of(int file);

/// Returns a descriptor of what the key names, or -1 if the process or its descriptor is gone.
int open_file(const IpcKey& key);

template <typename Handle>
void give_key(const IpcKey& key, Handle& handle) {
  static_assert(sizeof(IpcKey) <= sizeof(Handle));
  std::memset(&handle, 0, sizeof handle);
  std::memcpy(&handle, &key, sizeof key);
}

template <typename Handle>
IpcKey take_key(const Handle& handle) {
  IpcKey key;
  std::memcpy(static_cast<void*>(&key), &handle, sizeof key);
  return key;
}

}  // namespace xylem::fake_cuda
