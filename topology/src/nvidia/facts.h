// SPDX-License-Identifier: Apache-2.0
//
// Facts that NVIDIA's driver reports about its GPUs. The libraries belong to the driver and not to
// a package, so they are opened at run time, and their answers are turned into plain data.
#pragma once

#include "xylem/topology/topology.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace xylem::topology::nvidia {

/// The active NVLinks of a GPU that lead to the same target.
struct Links {
  PciAddress target;
  bool is_switch = false;
  std::uint32_t count = 0;

  friend bool operator==(const Links&, const Links&) = default;
};

struct GpuFacts {
  PciAddress address;
  PciId id;                           ///< Zeros if the driver does not report it.
  std::string model;                  ///< "NVIDIA H100 80GB HBM3"
  std::string uuid;                   ///< "GPU-8f6d…"
  std::string architecture;           ///< "sm_90"
  std::vector<Partition> partitions;  ///< MIG instances.
  std::vector<Links> links;

  friend bool operator==(const GpuFacts&, const GpuFacts&) = default;
};

/// Asks the management library (NVML), which reports all GPUs, regardless of CUDA_VISIBLE_DEVICES,
/// and their links. Nothing if `library` cannot be opened or does not start; then no driver is
/// running.
std::optional<std::vector<GpuFacts>> ask_nvml(const std::string& library);

/// Asks the CUDA driver, for machines without NVML. It reports only the GPUs that
/// CUDA_VISIBLE_DEVICES allows, without links and partitions. Nothing if `library` cannot be opened
/// or does not start. No context is created, but after the driver has been started, children that
/// this process forks cannot use CUDA.
std::optional<std::vector<GpuFacts>> ask_cuda(const std::string& library);

/// Completes the GPUs at these PCI addresses, and replaces the machine's NVLinks by the reported
/// NVLinks. GPUs that the machine does not have (/sys/bus/pci may be hidden) are added with an
/// unknown place.
void add_facts(Machine& machine, std::span<const GpuFacts> facts);

}  // namespace xylem::topology::nvidia
