// SPDX-License-Identifier: Apache-2.0
//
// Topology: one host as an immutable value. Readers collect facts in a Machine, and
// Topology::create() checks that they are consistent, so users of a Topology need no further
// checks.
#pragma once

#include "xylem/base/status.h"
#include "xylem/topology/device.h"
#include "xylem/topology/link.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace xylem::topology {

/// Limits for the parts of a host; no real host reaches them. A source that exceeds a limit is
/// damaged or hostile.
inline constexpr std::size_t kMaxPackages = 1024;
inline constexpr std::size_t kMaxNumaNodes = 1024;
inline constexpr std::size_t kMaxBridges = 16384;
inline constexpr std::size_t kMaxGpus = 512;
inline constexpr std::size_t kMaxNics = 4096;
inline constexpr std::size_t kMaxNvSwitches = 256;
inline constexpr std::size_t kMaxInterfaces = 16384;
inline constexpr std::size_t kMaxLinks = 65536;
inline constexpr std::size_t kMaxGpuPairs = kMaxGpus * (kMaxGpus - 1) / 2;
/// PCI numbers buses with one byte, so a tree cannot be deeper.
inline constexpr std::size_t kMaxBridgeDepth = 255;
/// The least and the largest bandwidth of a link. No real link is slower or faster.
inline constexpr GBps kLeastBandwidth{1e-6};
inline constexpr GBps kMostBandwidth{1e6};

/// The facts about one host, before Topology::create() has checked them. The index of a device is
/// its position in the list that contains it.
struct Machine {
  std::string host;          ///< Host name, if the source has one.
  std::string product;       ///< "ThinkSystem SD665-N V3", if the source has one.
  std::string architecture;  ///< "x86_64", if the source has one.
  std::vector<Package> packages;
  std::vector<NumaNode> numa_nodes;      ///< At least one node; see NumaNode::implied.
  std::vector<HostBridge> host_bridges;  ///< Only host bridges that lead to a device listed below.
  std::vector<Bridge> bridges;  ///< Only bridges that lead to a device; ordered by address.
  std::vector<Gpu> gpus;  ///< Ordered by address, as nvidia-smi and the CUDA driver number them.
  std::vector<Nic> nics;  ///< Ordered by address, then virtual NICs ordered by name.
  std::vector<NvSwitch> nvswitches;      ///< Ordered by address.
  std::vector<NetInterface> interfaces;  ///< Ordered by name.
  std::vector<Link> links;               ///< Ordered by (a, b, kind), without duplicates.
  std::vector<GpuPair> gpu_pairs;        ///< Ordered by (a, b), without duplicates.
  NvidiaDriver nvidia;

  friend bool operator==(const Machine&, const Machine&) = default;
};

/// A checked Machine. Cheap to copy, since copies share the facts. Any number of threads may read
/// it.
class Topology {
 public:
  /// Accepts `machine` if every index is in range, lists are in order and without duplicates, the
  /// PCIe tree has no cycle, rates are finite, and counts are within the limits above. Otherwise
  /// the error names the wrong fact.
  static Result<Topology> create(Machine machine);

  /// Impossible statements of the source and how they were interpreted, as text for users:
  /// "machine.xml:12: …".
  const std::vector<std::string>& remarks() const noexcept { return remarks_; }
  void set_remarks(std::vector<std::string> remarks) { remarks_ = std::move(remarks); }

  const Machine& machine() const noexcept { return *machine_; }
  const std::vector<Package>& packages() const noexcept { return machine_->packages; }
  const std::vector<NumaNode>& numa_nodes() const noexcept { return machine_->numa_nodes; }
  const std::vector<HostBridge>& host_bridges() const noexcept { return machine_->host_bridges; }
  const std::vector<Bridge>& bridges() const noexcept { return machine_->bridges; }
  const std::vector<Gpu>& gpus() const noexcept { return machine_->gpus; }
  const std::vector<Nic>& nics() const noexcept { return machine_->nics; }
  const std::vector<NvSwitch>& nvswitches() const noexcept { return machine_->nvswitches; }
  const std::vector<NetInterface>& interfaces() const noexcept { return machine_->interfaces; }
  const std::vector<Link>& links() const noexcept { return machine_->links; }
  const std::vector<GpuPair>& gpu_pairs() const noexcept { return machine_->gpu_pairs; }

  /// Indices of the NICs that can carry a collective between hosts: those with `fabric` set or, if
  /// the host has none, all NICs.
  std::vector<std::uint32_t> fabric_nics() const;

  /// The PCI function of a GPU, NIC, NVSwitch or bridge. Requires a node of one of these kinds that
  /// exists.
  const PciDevice& pci(NodeRef node) const;

  friend bool operator==(const Topology& left, const Topology& right) {
    return left.machine() == right.machine();
  }

 private:
  explicit Topology(Machine machine);

  std::shared_ptr<const Machine> machine_;
  std::vector<std::string> remarks_;  ///< Remarks on the source; not part of the machine.
};

}  // namespace xylem::topology
