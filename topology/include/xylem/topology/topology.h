// SPDX-License-Identifier: Apache-2.0
//
// Topology: what one host is, as one immutable value. Readers gather facts in a Machine;
// Topology::create checks that they fit together, and from then on nobody needs to check again.
#pragma once

#include "xylem/base/status.h"
#include "xylem/topology/device.h"
#include "xylem/topology/link.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace xylem::topology {

/// More than any host has; a source that names more is damaged or hostile.
inline constexpr std::size_t kMaxPackages = 1024;
inline constexpr std::size_t kMaxNumaNodes = 1024;
inline constexpr std::size_t kMaxBridges = 16384;
inline constexpr std::size_t kMaxGpus = 512;
inline constexpr std::size_t kMaxNics = 4096;
inline constexpr std::size_t kMaxNvSwitches = 256;
inline constexpr std::size_t kMaxInterfaces = 16384;
inline constexpr std::size_t kMaxLinks = 65536;
/// PCI numbers its buses with a byte, so a deeper tree cannot be.
inline constexpr std::size_t kMaxBridgeDepth = 255;
/// No link is slower, or faster.
inline constexpr GBps kLeastBandwidth{1e-6};
inline constexpr GBps kMostBandwidth{1e6};

/// The facts, still open to change. A device's index is its place in its list.
struct Machine {
  std::string host;          ///< Host name, if the source has one.
  std::string product;       ///< "ThinkSystem SD665-N V3", if the source has one.
  std::string architecture;  ///< "x86_64", if the source has one.
  std::vector<Package> packages;
  std::vector<NumaNode> numa_nodes;      ///< At least one; see NumaNode::implied.
  std::vector<HostBridge> host_bridges;  ///< Only those that lead to a device below.
  std::vector<Bridge> bridges;           ///< Likewise; by address.
  std::vector<Gpu> gpus;             ///< By address: what nvidia-smi and the CUDA driver number.
  std::vector<Nic> nics;             ///< By address; then virtual ones, by name.
  std::vector<NvSwitch> nvswitches;  ///< By address.
  std::vector<NetInterface> interfaces;  ///< By name.
  std::vector<Link> links;               ///< By (a, b, kind), each once.

  friend bool operator==(const Machine&, const Machine&) = default;
};

/// A checked Machine. Copying is cheap (copies share the facts) and any number of threads may read.
class Topology {
 public:
  /// Takes `machine` if every index is in range, lists are in order and without duplicates, the
  /// PCIe tree has no cycle, rates are finite and counts within the limits above; else says which
  /// fact is wrong.
  static Result<Topology> create(Machine machine);

  /// What its source says that cannot be so, and what was made of it, for people: "machine.xml:12:
  /// …".
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

  /// Indices of the NICs that could carry a collective between hosts: those with `fabric` set or,
  /// where a host has none, all of them.
  std::vector<std::uint32_t> fabric_nics() const;

  /// The PCI function behind a GPU, NIC, NVSwitch or bridge. Requires such a node, in range.
  const PciDevice& pci(NodeRef node) const;

  friend bool operator==(const Topology& left, const Topology& right) {
    return left.machine() == right.machine();
  }

 private:
  explicit Topology(Machine machine);

  std::shared_ptr<const Machine> machine_;
  std::vector<std::string> remarks_;  ///< Of the source, not of the machine.
};

}  // namespace xylem::topology
