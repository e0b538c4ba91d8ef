// SPDX-License-Identifier: Apache-2.0
//
// The settings of the driver and its devices, from environment variables. fake_cuda.h describes the
// variables.
#pragma once

#include "fakes/cuda_driver/cuda_api.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace xylem::fake_cuda {

/// Call number `call` of `function` returns `result`.
struct Fault {
  std::string function;
  unsigned long call = 0;
  CUresult result = CUDA_SUCCESS;
};

struct Settings {
  unsigned devices = 1;
  std::size_t memory = 0;  ///< Memory of each device, in bytes.
  unsigned queues = 6;
  std::uint64_t seed = 1;
  std::uint64_t delay_us = 0;
  int version = 13000;
  CUresult init = CUDA_SUCCESS;
  std::string kernels;
  std::vector<Fault> faults;
  bool has_memory_operations = true;
  bool has_ipc = true;
  bool has_mps = false;
  bool can_flush = false;
  bool has_peer_access = true;
};

/// Reads the environment. Ends the process if a variable is invalid, since a test would otherwise
/// run with wrong settings.
Settings read_settings();

/// True for errors after which a device is unusable.
bool is_device_lost(CUresult result) noexcept;

}  // namespace xylem::fake_cuda
