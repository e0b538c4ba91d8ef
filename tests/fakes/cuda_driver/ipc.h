// SPDX-License-Identifier: Apache-2.0
//
// IPC handles. A handle contains a file descriptor of the exporting process. The opening process
// opens it as /proc/PID/fd/N.
#pragma once

#include "fakes/cuda_driver/memory.h"

#include <cstring>

namespace xylem::fake_cuda {

/// Returns the key of a file descriptor of this process.
IpcKey key_of(int file);

/// Opens the file of a key, and returns a descriptor. Returns -1 if the exporting process has ended
/// or has closed the file.
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
