// SPDX-License-Identifier: Apache-2.0
//
// Turns the objects of an hwloc file into a Machine in three passes: processors; devices, whose
// places refer to NUMA nodes; and links, which refer to devices.
#pragma once

#include "hwloc_xml/document.h"
#include "xylem/topology/topology.h"

#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace xylem::topology::hwloc_xml {

/// <info> elements of the root whose names begin with this prefix hold lists of the machine as
/// JSON, for facts that hwloc's format cannot express.
inline constexpr std::string_view kOwnPrefix = "Xylem:";

/// State that the passes share.
struct Build {
  explicit Build(const Document& source) : document(source), nodes(source.objects().size()) {}

  const Object& object(std::uint32_t index) const { return document.objects()[index]; }

  const Document& document;
  Machine machine;
  /// For each object, the node of `machine` that it became, if any.
  std::vector<std::optional<NodeRef>> nodes;
  /// The localities that locality_of() has computed, by the index of the object. They are cached,
  /// since all devices of a package need the same locality.
  std::unordered_map<std::uint32_t, Locality> localities;
};

/// Fills packages and NUMA nodes.
Status build_processors(Build& build);

/// Fills host bridges, bridges, GPUs, NICs, NVSwitches and interfaces. Call after
/// build_processors().
Status build_devices(Build& build);

/// Fills links from the NVLink and XGMI matrices. Call after build_devices().
Status build_links(Build& build);

/// The NUMA nodes near `object`; for a device, those near the object to which its host bridge is
/// attached. Call after build_processors().
Result<Locality> locality_of(Build& build, std::uint32_t object);

/// The nearest PCI device among `object` and its ancestors.
std::optional<std::uint32_t> pci_ancestor(const Build& build, std::uint32_t object);

/// Adds facts from OS devices: interfaces, RDMA ports, names and partitions of GPUs. Part of
/// build_devices().
Status build_os_devices(Build& build);

/// Whether the object is the OS device of an RDMA function.
bool is_openfabrics(const Document& document, const Object& object);

/// The machine that `text` describes, before any checks.
Result<Machine> read_machine(std::string_view text, std::string_view source);

}  // namespace xylem::topology::hwloc_xml
