// SPDX-License-Identifier: Apache-2.0
//
// Discovery: describes the host on which this process runs. hwloc inspects the host, its XML passes
// through the same reader as a file, and sysfs adds what hwloc does not report. So every test that
// reads a file also tests the code used by discovery.
#pragma once

#include "xylem/base/status.h"
#include "xylem/topology/topology.h"

#include <string>
#include <vector>

namespace xylem::topology {

/// Where discovery looks.
struct DiscoverOptions {
  /// The root of sysfs, from which interfaces, RDMA ports and PCIe link widths are read.
  std::string sysfs_root = "/sys";
  /// Places where distributions keep the PCI ID database. The first one that can be read is used
  /// for the names of vendors and models.
  std::vector<std::string> pci_ids = {"/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids"};
  /// Libraries of NVIDIA's driver, by the names that dlopen() takes. A library with an empty name
  /// is not queried. If both report a fact, the value of NVML is used; the CUDA driver adds what
  /// NVML does not report. The CUDA driver stays loaded, so children that this process forks cannot
  /// use CUDA. Its start takes up to some seconds.
  std::string nvml = "libnvidia-ml.so.1";
  std::string cuda = "libcuda.so.1";
};

/// Describes this host completely, including CPUs that this process may not use.
///
/// Takes from milliseconds to a second, so call it once and keep the value. Needs no privileges;
/// what a container hides is absent, which is not an error. hwloc itself reads the environment
/// (HWLOC_*). If that makes hwloc describe another machine, discovery fails with `unsupported`
/// unless the user states that it is this machine (HWLOC_THISSYSTEM=1). hwloc may print warnings
/// about unusual firmware to standard error unless HWLOC_HIDE_ERRORS=2. Its X11, OpenCL and
/// libpciaccess plugins are disabled.
Result<Topology> discover(const DiscoverOptions& options = {});

/// Adds facts from the sysfs tree at `root` to `machine`: interfaces (kind, state, rate, MTU,
/// driver, NIC), RDMA ports (state, link layer, rate), virtual functions, and PCIe width and speed.
/// Facts whose files are missing or unreadable stay as they were.
///
/// The bandwidth of a PCIe link is computed from its present width and the highest speed that both
/// ends support: idle GPUs lower the speed of their link, while a narrow slot always limits its
/// width.
void add_sysfs_facts(Machine& machine, const std::string& root);

/// Adds facts from NVIDIA's driver, if there is one: model, UUID, compute capability, memory and
/// MIG instances of the GPUs, which are matched by PCI address; their PCIe links if sysfs hides
/// them; their NVLinks and the NVSwitches at the other ends; and which GPUs reach each other's
/// memory. GPUs whose PCI functions are hidden by a container are added with an unknown place. If
/// the facts do not form a valid machine, none of them is used. It is no error if a library cannot
/// be queried. If there are GPUs of NVIDIA, Machine::nvidia then says why.
void add_nvidia_facts(Machine& machine, const DiscoverOptions& options);

/// Fills in missing names of vendors and models from the PCI ID database at `path`. False if it
/// cannot be read.
bool add_pci_names(Machine& machine, const std::string& path);

}  // namespace xylem::topology
