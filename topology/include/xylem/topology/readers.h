// SPDX-License-Identifier: Apache-2.0
//
// Readers: turn files into topologies. They accept untrusted text. The result is always a topology,
// or an error that names the source, the position in the text and the violated rule. Time and
// memory are proportional to the size of the text.
#pragma once

#include "xylem/base/status.h"
#include "xylem/topology/topology.h"

#include <string>
#include <string_view>

namespace xylem::topology {

/// Longer text is refused before parsing. The largest known real file is below 1 MiB.
inline constexpr std::size_t kMaxSourceBytes = std::size_t{16} << 20;

/// Reads hwloc's XML: schema 1 (hwloc 1.x), 2 and 3. `source` names the text in errors, such as
/// "machine.xml".
Result<Topology> read_hwloc_xml(std::string_view text, std::string_view source);

/// Reads a topology file of NCCL or RCCL: one written by NCCL_TOPO_DUMP_FILE, or a template for
/// NCCL_TOPO_FILE in which PCI functions have a class.
Result<Topology> read_nccl_xml(std::string_view text, std::string_view source);

/// Reads the output of to_json() and returns an equal value.
Result<Topology> read_json(std::string_view text, std::string_view source);

/// Reads a one-line description of a machine: the numbers and places of its parts, the links
/// between GPUs, and PCIe, such as "2 packages, 4 switches, 2 gpus/switch, 1 nic/gpu 400 Gb/s,
/// nvswitch, pcie gen5 x16". The grammar is in docs/topology.md.
Result<Topology> read_synthetic(std::string_view text, std::string_view source);

/// The text of a file, which may also be a pipe. Fails if it has more than kMaxSourceBytes bytes,
/// so that an endless device file does not exhaust the memory.
Result<std::string> read_text(const std::string& path);

/// Reads a file in any of the forms above, which are distinguished by the first character and the
/// root element. A one-line description begins with a digit.
Result<Topology> read_file(const std::string& path);

}  // namespace xylem::topology
