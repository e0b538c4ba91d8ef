// SPDX-License-Identifier: Apache-2.0
//
// Discovery: the host that this process runs on. hwloc looks, its XML goes through the same reader
// as a file, and sysfs adds what hwloc does not tell: so every file of a test exercises what runs
// live.
#pragma once

#include "xylem/base/status.h"
#include "xylem/topology/topology.h"

#include <string>
#include <vector>

namespace xylem::topology {

/// Where discovery looks.
struct DiscoverOptions {
  /// Read for interfaces, RDMA ports and PCIe link widths.
  std::string sysfs_root = "/sys";
  /// Where distributions keep the PCI ID database; the first that can be read names vendors and
  /// models.
  std::vector<std::string> pci_ids = {"/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids"};
  /// Libraries of NVIDIA's driver, as dlopen() takes them; empty: not asked. The CUDA driver is
  /// asked only where there is no NVML, and stays in the process: children that it forks cannot use
  /// CUDA.
  std::string nvml = "libnvidia-ml.so.1";
  std::string cuda = "libcuda.so.1";
};

/// What this host is. The whole of it: also CPUs that this process may not use.
///
/// Takes from milliseconds to a second, so call it once and keep the value. Needs no privilege;
/// what a container hides is absent, not an error. hwloc itself reads the environment (HWLOC_*):
/// `unsupported` where that makes it show another machine without the user's word that it is this
/// one (HWLOC_THISSYSTEM=1). It may print warnings about odd firmware to standard error unless
/// HWLOC_HIDE_ERRORS=2. Its X11, OpenCL and libpciaccess plugins are switched off.
Result<Topology> discover(const DiscoverOptions& options = {});

/// Adds what the sysfs tree at `root` knows to `machine`: interfaces (kind, state, rate, MTU,
/// driver, NIC), RDMA ports (state, link layer, rate), virtual functions, and PCIe width and speed.
/// Files that are missing or unreadable leave the facts as they were.
///
/// A PCIe link's bandwidth follows from its present width and the highest speed that both of its
/// ends support: GPUs slow their link down when idle, but a narrow slot stays narrow.
void add_sysfs_facts(Machine& machine, const std::string& root);

/// Adds what NVIDIA's driver knows, if there is one: model, UUID, compute capability and MIG
/// instances of its GPUs, found by PCI address, their NVLinks and the NVSwitches that these lead
/// to. GPUs whose PCI functions a container hides are added, and their place is unknown. Facts that
/// make no machine are left out, all of them.
void add_nvidia_facts(Machine& machine, const DiscoverOptions& options);

/// Names vendors and models that have no name yet by the PCI ID database at `path`. False if it
/// cannot be read.
bool add_pci_names(Machine& machine, const std::string& path);

}  // namespace xylem::topology
