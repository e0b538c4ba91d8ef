// SPDX-License-Identifier: Apache-2.0
//
// Discovery: describes the host on which this process runs. hwloc exports the host as XML, which is
// read by the same reader as a file. So every test that reads a file also tests code that discovery
// uses. Then sysfs and NVIDIA's driver add what hwloc does not report.
#pragma once

#include "xylem/base/status.h"
#include "xylem/topology/topology.h"

#include <string>
#include <vector>

namespace xylem::topology {

/// The files and libraries that discovery reads.
struct DiscoverOptions {
  /// The root of sysfs, from which interfaces, RDMA ports and PCIe link widths are read.
  std::string sysfs_root = "/sys";
  /// Places where distributions keep the PCI ID database. The first one that can be read is used
  /// for the names of vendors and models.
  std::vector<std::string> pci_ids = {"/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids"};
  /// Libraries of NVIDIA's driver, by the names that dlopen() takes. A library with an empty name
  /// is not queried. If both libraries report a fact, the value of NVML is used; the CUDA driver
  /// adds what NVML does not report. The CUDA driver stays loaded, so children that this process
  /// forks cannot use CUDA. The start of the CUDA driver takes up to a few seconds.
  std::string nvml = "libnvidia-ml.so.1";
  std::string cuda = "libcuda.so.1";
};

/// Describes this host completely, including CPUs that this process may not use.
///
/// Takes from milliseconds to seconds, so call this function once and keep the result. Needs no
/// privileges. Parts that a container hides are absent from the result, which is not an error.
/// hwloc itself reads the environment (HWLOC_*). If these variables make hwloc describe another
/// machine, discovery fails with `unsupported`. HWLOC_THISSYSTEM=1 prevents this failure: it states
/// that the description is of this machine. hwloc may print warnings about unusual firmware to
/// standard error unless HWLOC_HIDE_ERRORS=2. The X11, OpenCL and libpciaccess plugins of hwloc are
/// disabled.
Result<Topology> discover(const DiscoverOptions& options = {});

/// Adds facts from the sysfs tree at `root` to `machine`: interfaces (kind, state, rate, MTU,
/// driver, NIC), RDMA ports (state, link layer, rate), virtual functions, and PCIe width and speed.
/// Facts whose files are missing or unreadable are not changed.
///
/// The bandwidth of a PCIe link is computed from its present width and the highest speed that both
/// ends support: idle GPUs lower the speed of their link, while a narrow slot always limits its
/// width.
void add_sysfs_facts(Machine& machine, const std::string& root);

/// Adds facts from NVIDIA's driver, if it is installed: model, UUID, compute capability, memory and
/// MIG instances of the GPUs, PCIe links that sysfs hides, NVLinks, NVSwitches at the ends of
/// NVLinks, and which GPUs can access each other's memory. GPUs are matched by PCI address. GPUs
/// whose PCI functions are hidden by a container are added with an unknown place. If the facts do
/// not form a valid machine, none of them is used. It is no error if a library cannot be queried.
/// If the machine has GPUs of NVIDIA, NvidiaDriver::trouble then states the reason.
void add_nvidia_facts(Machine& machine, const DiscoverOptions& options);

/// Fills in missing names of vendors and models from the PCI ID database at `path`. Returns false
/// if the file cannot be read.
bool add_pci_names(Machine& machine, const std::string& path);

}  // namespace xylem::topology
