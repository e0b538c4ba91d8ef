// SPDX-License-Identifier: Apache-2.0
//
// From a topology file of NCCL or RCCL to a Machine.
//
//   <system version="1">
//     <cpu numaid="0" affinity="ffff" arch="x86_64" …>          a NUMA node
//       <pci busid="0000:08:00.0" class="0x060400" …>           a whole PCIe switch
//         <pci busid="0000:0f:00.0" class="0x030200" …>
//           <gpu dev="0" sm="90" rank="0" gdr="1">              left out in static templates
//             <nvlink target="0000:1c:00.0" count="5" tclass="0x068000"/>
//         <pci busid="0000:0c:00.0" class="0x020700" …>
//           <nic> <net name="mlx5_0" speed="200000" port="1" …/>
//
// NCCL writes such files with NCCL_TOPO_DUMP_FILE and reads them with NCCL_TOPO_FILE; clouds ship
// some as templates that leave GPUs and NICs to be told by their PCI class. Host bridges, root
// ports and the ports of switches are not in them.
#pragma once

#include "gpu_links.h"
#include "xml_text.h"
#include "xylem/topology/topology.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace xylem::topology::nccl_xml {

/// The unit of a <net>'s speed.
inline constexpr double kMegabitsPerGigabyte = 8000;

/// A function on its way to its list. Devices are listed by address, so a parent's index is not
/// known before all have been found.
struct Found {
  pugi::xml_node node;
  PciDevice pci;
  std::optional<std::size_t> parent;  ///< A switch, by its place in Build::switches.
};

/// A network device: under a PCI function, which several may share, or under none (a socket over a
/// virtual interface).
struct FoundNic {
  Found function;
  Nic nic;
};

struct Build {
  explicit Build(const XmlText& source) : xml(source) {}

  const XmlText& xml;
  Machine machine;
  std::vector<Found> switches;
  std::vector<Found> gpus;
  std::vector<FoundNic> nics;
  std::vector<std::string> remarks;
};

/// Finds what is below the <cpu> of a NUMA node.
Status find_devices(Build& build, pugi::xml_node cpu, std::uint32_t numa);

/// Lists what was found, each kind by address. After find_devices() of every <cpu>.
Status list_devices(Build& build);

/// Fills links, and the NVSwitches that they lead to. After list_devices().
Status build_links(Build& build);

}  // namespace xylem::topology::nccl_xml
