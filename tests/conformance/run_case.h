// SPDX-License-Identifier: Apache-2.0
//
// Runs one case at one rank. Checks every element, the guards around the output, and that the input
// has not changed.
#pragma once

#include "conformance/reference.h"
#include "support/buffer_memory.h"
#include "xylem/collectives/planner.h"
#include "xylem/xylem.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace xylem::test {

/// The device that holds a rank's buffers, if they are not in host memory.
struct BuffersOnDevice {
  BufferMemory& memory;
  Memory kind;
};

/// A case that is being run. The communicator and the device's memory must outlive it.
class RunningCase {
 public:
  /// Makes the call.
  RunningCase(const Communicator& comm, const Case& one, const BuffersOnDevice* device);
  /// Waits for the end of the call. Returns what is wrong, or an empty string.
  std::string finish();

 private:
  const Case one_;
  const std::uint32_t ranks_, rank_;
  const BuffersOnDevice* const device_;
  /// An output between guards, and an input. If the call is in place, the input is a part of the
  /// output.
  struct Space {
    std::vector<std::byte> output_space, input_space;
    std::byte* output = nullptr;
    std::byte* input = nullptr;
  };
  static Space make_space(const Case& one,
                          std::uint32_t rank,
                          std::uint64_t inputs,
                          std::uint64_t outputs);
  const std::uint64_t inputs_, outputs_;
  Space memory_;
  std::vector<std::byte> input_before_;
  std::byte *output_there_ = nullptr, *input_there_ = nullptr;
  Work work_;
};

/// Runs a case. Returns what is wrong, or an empty string. Clears the device's memory.
std::string run_case(const Communicator& comm,
                     const Case& one,
                     const BuffersOnDevice* device = nullptr);

std::vector<const collectives::Planner*> all_planners();

}  // namespace xylem::test
