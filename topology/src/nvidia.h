// SPDX-License-Identifier: Apache-2.0
//
// What NVIDIA's driver tells of its GPUs. Its libraries belong to the driver and not to a package,
// so they are opened where they are found, and what they say is plain data from then on.
#pragma once

#include "xylem/topology/topology.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace xylem::topology::nvidia {

/// NVLinks of a GPU that are up and lead to the same place.
struct Links {
  PciAddress target;
  bool is_switch = false;
  std::uint32_t count = 0;

  friend bool operator==(const Links&, const Links&) = default;
};

struct GpuFacts {
  PciAddress address;
  PciId id;                           ///< Zeros if the driver does not tell.
  std::string model;                  ///< "NVIDIA H100 80GB HBM3"
  std::string uuid;                   ///< "GPU-8f6d…"
  std::string architecture;           ///< "sm_90"
  std::vector<Partition> partitions;  ///< Its MIG instances.
  std::vector<Links> links;

  friend bool operator==(const GpuFacts&, const GpuFacts&) = default;
};

/// By the management library (NVML), which tells of all GPUs whatever CUDA_VISIBLE_DEVICES says,
/// and of their links. Nothing if `library` cannot be opened or does not start; then no driver
/// runs.
std::optional<std::vector<GpuFacts>> ask_nvml(const std::string& library);

/// By the CUDA driver, where there is no NVML: the GPUs that CUDA_VISIBLE_DEVICES leaves, without
/// links and partitions. Nothing likewise. It makes no context; but a process that has started the
/// driver cannot use CUDA in children that it forks.
std::optional<std::vector<GpuFacts>> ask_cuda(const std::string& library);

/// Completes the GPUs that are told of, found by PCI address, and puts these NVLinks in the place
/// of those that the machine has. GPUs that the machine does not have are added where /sys/bus/pci
/// is hidden; of their place nothing is known.
void add_facts(Machine& machine, std::span<const GpuFacts> facts);

}  // namespace xylem::topology::nvidia
