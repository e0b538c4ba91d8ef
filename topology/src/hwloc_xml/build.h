// SPDX-License-Identifier: Apache-2.0
//
// From the objects of an hwloc file to a Machine, in three passes: processors, then devices (whose
// places name NUMA nodes), then links (which name devices).
#pragma once

#include "hwloc_xml/document.h"
#include "xylem/topology/topology.h"

#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace xylem::topology::hwloc_xml {

/// Infos of the root whose names begin so hold lists of the machine as JSON: what hwloc's form has
/// no room for.
inline constexpr std::string_view kOwnPrefix = "Xylem:";

/// What the passes share.
struct Build {
  explicit Build(const Document& source) : document(source), nodes(source.objects().size()) {}

  const Object& object(std::uint32_t index) const { return document.objects()[index]; }

  const Document& document;
  Machine machine;
  /// What each object became, if anything.
  std::vector<std::optional<NodeRef>> nodes;
  /// Locality by object, since all devices of a package ask for the same.
  std::unordered_map<std::uint32_t, Locality> localities;
};

/// Fills packages and NUMA nodes.
Status build_processors(Build& build);

/// Fills host bridges, bridges, GPUs, NICs, NVSwitches and interfaces. After build_processors.
Status build_devices(Build& build);

/// Fills links from the NVLink and XGMI matrices. After build_devices.
Status build_links(Build& build);

/// The NUMA nodes near `object` or, for a device, near what its host bridge hangs from. After
/// build_processors.
Result<Locality> locality_of(Build& build, std::uint32_t object);

/// The nearest ancestor of `object` that is a PCI device.
std::optional<std::uint32_t> pci_ancestor(const Build& build, std::uint32_t object);

/// Adds what OS devices tell: interfaces, RDMA ports, names and partitions of GPUs. Part of
/// build_devices.
Status build_os_devices(Build& build);

/// True for the OS device of an RDMA function.
bool is_openfabrics(const Document& document, const Object& object);

/// The machine that `text` describes, not yet checked.
Result<Machine> read_machine(std::string_view text, std::string_view source);

}  // namespace xylem::topology::hwloc_xml
