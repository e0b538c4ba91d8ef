// SPDX-License-Identifier: Apache-2.0
//
// Readers: files into topologies. They take text from strangers: whatever it holds, the answer is a
// topology or an error that names the source, the place and the rule; time and memory stay
// proportional to its size.
#pragma once

#include "xylem/base/status.h"
#include "xylem/topology/topology.h"

#include <string>
#include <string_view>

namespace xylem::topology {

/// Text longer than this is refused before it is parsed. The largest real file known is under 1
/// MiB.
inline constexpr std::size_t kMaxSourceBytes = std::size_t{16} << 20;

/// Reads hwloc's XML: schema 1 (hwloc 1.x), 2 and 3. `source` names it in errors ("machine.xml").
Result<Topology> read_hwloc_xml(std::string_view text, std::string_view source);

/// Reads a topology of NCCL or RCCL: what NCCL_TOPO_DUMP_FILE wrote, or a template for
/// NCCL_TOPO_FILE whose functions have a class.
Result<Topology> read_nccl_xml(std::string_view text, std::string_view source);

/// Reads what to_json wrote: the same value comes back.
Result<Topology> read_json(std::string_view text, std::string_view source);

/// Reads a machine described in a line: numbers of things and where they are, links between GPUs,
/// PCIe. "2 packages, 4 switches, 2 gpus/switch, 1 nic/gpu 400 Gb/s, nvswitch, pcie gen5 x16";
/// docs/topology.md has the grammar.
Result<Topology> read_synthetic(std::string_view text, std::string_view source);

/// The text of a file, cut one byte beyond kMaxSourceBytes, so that readers see that it is too
/// long.
Result<std::string> read_text(const std::string& path);

/// Reads a file in any of these forms, told apart by its first character and root element. A
/// description begins with a digit.
Result<Topology> read_file(const std::string& path);

}  // namespace xylem::topology
