// SPDX-License-Identifier: Apache-2.0
//
// Facts that NVIDIA's driver reports about its GPUs. The libraries belong to the driver and not to
// a package, so they are opened at run time, and the facts that they report are stored as plain
// data. If a function is missing or fails, or reports an impossible number, the fact is unknown.
#pragma once

#include "xylem/base/status.h"
#include "xylem/topology/topology.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace xylem::topology::nvidia {

/// If there are more GPUs than this, the driver is not queried about pairs.
inline constexpr std::size_t kMostPairedGpus = 64;

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
  std::optional<std::uint32_t> nvlinks_down;
  Bytes memory;      ///< 0: unknown.
  Rate memory_rate;  ///< Computed from the clock and the width of the memory's bus.
  /// The highest speed that GPU and slot support, with the present width.
  Rate pcie;
  std::optional<std::uint32_t> pcie_lanes;  ///< The width that GPU and slot support.
  std::optional<bool> ipc;
  std::optional<bool> rdma;
};

/// Whether two GPUs reach each other's memory.
struct PairFacts {
  PciAddress a, b;
  PeerAccess access = PeerAccess::unknown;
};

struct Facts {
  std::vector<GpuFacts> gpus;
  std::vector<PairFacts> pairs;
  std::string driver_version;  ///< "580.65.06"
  std::string cuda_version;    ///< "13.0": the newest that the driver supports.
};

/// Queries the management library (NVML), which reports all GPUs, regardless of
/// CUDA_VISIBLE_DEVICES, and their links. Fails with `unsupported` if `library` cannot be opened or
/// does not start, as on a machine without a driver.
Result<Facts> ask_nvml(const std::string& library);

/// Queries the CUDA driver. It reports only the GPUs that CUDA_VISIBLE_DEVICES allows, without
/// links and partitions. Unlike NVML, it reports what processes and NICs may do with the memory of
/// a GPU. Fails like ask_nvml(). No context is created, but after the driver has been started,
/// children that this process forks cannot use CUDA.
Result<Facts> ask_cuda(const std::string& library);

/// The bandwidth of memory whose bus is `bits` wide and has a clock of `megahertz`; the memory
/// transfers twice per cycle. Unknown if the numbers are impossible.
Rate memory_rate_of(double megahertz, double bits);

/// Adds the facts to the machine's GPUs at the same PCI addresses. If `facts` contain NVLinks, they
/// replace the NVLinks of the machine. GPUs that the machine does not have (/sys/bus/pci may be
/// hidden) are added with an unknown place.
void add_facts(Machine& machine, const Facts& facts);

}  // namespace xylem::topology::nvidia
