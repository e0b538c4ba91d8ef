// SPDX-License-Identifier: Apache-2.0
//
// Turns a topology file of NCCL or RCCL into a Machine.
//
//   <system version="1">
//     <cpu numaid="0" affinity="ffff" arch="x86_64" …>          a NUMA node
//       <pci busid="0000:08:00.0" class="0x060400" …>           a whole PCIe switch
//         <pci busid="0000:0f:00.0" class="0x030200" …>
//           <gpu dev="0" sm="90" rank="0" gdr="1">              left out in static templates
//             <nvlink target="0000:1c:00.0" count="5" tclass="0x068000"/>
//             <c2c bw="43125" count="8"/>                       NVLink to the CPU (Grace)
//         <pci busid="0000:0c:00.0" class="0x020700" …>
//           <nic> <net name="mlx5_0" speed="200000" port="1" …/>
//
// NCCL writes such files with NCCL_TOPO_DUMP_FILE and reads them with NCCL_TOPO_FILE. Cloud
// providers ship some as templates, in which GPUs and NICs are recognized by their PCI class. The
// files contain no host bridges, root ports or switch ports.
#pragma once

#include "gpu_links.h"
#include "xml_text.h"
#include "xylem/topology/topology.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace xylem::topology::nccl_xml {

/// The unit of a <net> element's speed.
inline constexpr double kMegabitsPerGigabyte = 8000;
/// In GB. The unit of a <c2c> element's bw is MB/s.
inline constexpr double kMegabyte = 1e-3;

/// A PCI function before list_devices() adds it to its list. Devices are sorted by address, so the
/// index of a parent is unknown until all devices have been found.
struct Found {
  pugi::xml_node node;
  PciDevice pci;
  std::optional<std::size_t> parent;  ///< The switch above it, as a position in Build::switches.
};

/// A network device. Several devices may share one PCI function. A socket over a virtual interface
/// has no PCI function.
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

/// Finds the devices below the <cpu> of a NUMA node.
Status find_devices(Build& build, pugi::xml_node cpu, std::uint32_t numa);

/// Moves the found devices into their lists, sorted by address. Call after find_devices() of every
/// <cpu>.
Status list_devices(Build& build);

/// Fills links and the NVSwitches to which they lead. Call after list_devices().
Status build_links(Build& build);

}  // namespace xylem::topology::nccl_xml
