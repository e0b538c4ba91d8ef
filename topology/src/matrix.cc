// SPDX-License-Identifier: Apache-2.0
//
// Writes the same matrix as `nvidia-smi topo -m`, so that both outputs can be compared line by
// line.
#include "matrix.h"

#include "words.h"
#include "xylem/topology/writers.h"

#include <fmt/format.h>

#include <algorithm>

namespace xylem::topology {
namespace {

using Cells = std::vector<std::string>;

/// Pads each column to its widest cell and puts tabs between the cells, so that the cells align and
/// can still be split at the tabs.
std::string aligned(const std::vector<Cells>& rows) {
  std::vector<std::size_t> widths;
  for (const Cells& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Cells& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += '\t';
      line += i + 1 == row.size() ? row[i] : fmt::format("{:<{}}", row[i], widths[i]);
    }
    text += line + '\n';
  }
  return text;
}

constexpr std::string_view kLegend = R"(
Legend:

  X    = the device itself
  NV#  = # NVLinks side by side, directly or through NVSwitches
  XGMI = AMD's links between GPUs
  PIX  = below one PCIe switch, with at most one bridge each
  PXB  = below one PCIe switch, with more bridges
  PHB  = below one host bridge, without a switch
  NODE = below different host bridges of one NUMA node
  SYS  = near different NUMA nodes
  ?    = unknown
)";

std::string nic_legend(const Topology& topology) {
  const auto nics = topology.fabric_nics();
  if (nics.empty()) return {};
  std::string text = "\nNIC Legend:\n\n";
  for (std::size_t i = 0; i < nics.size(); ++i) {
    text += fmt::format("  NIC{}: {}\n", i, topology.nics()[nics[i]].name);
  }
  return text;
}

/// Sets `cpus` and `numa` of `row`: the CPUs and the NUMA node near a GPU; "N/A" if its place is
/// unknown.
void add_affinity(Matrix::Row& row, const Topology& topology, const PciDevice& pci) {
  row.cpus = row.numa = "N/A";
  if (pci.numa.size() != 1) return;
  const NumaNode& node = topology.numa_nodes()[pci.numa.front()];
  if (!node.cpus.empty()) row.cpus = node.cpus.to_string();
  row.numa = std::to_string(node.os_index);
}

}  // namespace

Matrix matrix_of(const Topology& topology, bool pci_only) {
  Matrix matrix;
  std::vector<NodeRef> nodes;
  for (std::uint32_t i = 0; i < topology.gpus().size(); ++i) {
    nodes.push_back({NodeKind::gpu, i});
    matrix.rows.push_back({fmt::format("GPU{}", i), {}, {}, {}});
    add_affinity(matrix.rows.back(), topology, topology.gpus()[i].pci);
  }
  for (const std::uint32_t nic : topology.fabric_nics()) {
    nodes.push_back({NodeKind::nic, nic});
    matrix.rows.push_back({topology.nics()[nic].name, {}, {}, {}});
    matrix.has_nics = true;
  }
  for (std::size_t a = 0; a < nodes.size(); ++a) {
    for (std::size_t b = 0; b < nodes.size(); ++b) {
      const Path way =
          pci_only ? pci_path(topology, nodes[a], nodes[b]) : path(topology, nodes[a], nodes[b]);
      const bool assumed = way.locality_assumed;
      matrix.node_assumed |= assumed && way.path_class == PathClass::node;
      matrix.phb_assumed |= assumed && way.path_class == PathClass::phb;
      matrix.nvswitch_assumed |= assumed && way.path_class == PathClass::nvl;
      matrix.shows_nvlink |= way.path_class == PathClass::nvl;
      matrix.rows[a].cells.push_back(a == b ? "X" : cell_of(way));
    }
  }
  return matrix;
}

std::string to_matrix(const Topology& topology) {
  const Matrix matrix = matrix_of(topology);
  if (matrix.rows.empty()) return "no GPU and no NIC on this host\n";

  const std::size_t gpus = topology.gpus().size();
  Cells header{""};
  for (std::size_t i = 0; i < matrix.rows.size(); ++i) {
    header.push_back(i < gpus ? matrix.rows[i].name : fmt::format("NIC{}", i - gpus));
  }
  std::vector<Cells> lines{header};
  lines.front().insert(lines.front().end(),
                       {std::string(kCpuAffinity), std::string(kNumaAffinity)});
  for (std::size_t a = 0; a < matrix.rows.size(); ++a) {
    const Matrix::Row& row = matrix.rows[a];
    Cells line{header[a + 1]};
    for (std::size_t b = 0; b < row.cells.size(); ++b) {
      line.push_back(a == b ? " X " : row.cells[b]);
    }
    if (a < gpus) line.insert(line.end(), {row.cpus, row.numa});
    lines.push_back(std::move(line));
  }
  std::string text = aligned(lines);
  text += kLegend;
  text += nic_legend(topology);
  if (matrix.node_assumed) {
    text +=
        "\nThis host does not say which NUMA node its devices are near: NODE may really be "
        "SYS.\n";
  }
  if (matrix.phb_assumed) {
    text += "\nThis source does not distinguish host bridges: PHB may really be NODE.\n";
  }
  if (matrix.nvswitch_assumed) {
    text +=
        "\nThis source does not show how NVSwitches are connected: all are taken for one fabric.\n";
  }
  return text;
}

}  // namespace xylem::topology
