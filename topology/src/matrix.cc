// SPDX-License-Identifier: Apache-2.0
//
// The matrix of `nvidia-smi topo -m`, so that the two can be compared line by line.
#include "words.h"
#include "xylem/topology/writers.h"

#include <fmt/format.h>

#include <algorithm>

namespace xylem::topology {
namespace {

using Row = std::vector<std::string>;

/// GPUs, then fabric NICs, with their headings.
struct Devices {
  std::vector<NodeRef> nodes;
  std::vector<std::string> headings;
};

Devices devices_of(const Topology& topology) {
  Devices devices;
  for (std::uint32_t i = 0; i < topology.gpus().size(); ++i) {
    devices.nodes.push_back({NodeKind::gpu, i});
    devices.headings.push_back(fmt::format("GPU{}", i));
  }
  std::uint32_t number = 0;
  for (const std::uint32_t nic : topology.fabric_nics()) {
    devices.nodes.push_back({NodeKind::nic, nic});
    devices.headings.push_back(fmt::format("NIC{}", number++));
  }
  return devices;
}

/// The CPUs and the node near a GPU; "N/A" where its place is unknown.
void add_affinity(Row& row, const Topology& topology, const PciDevice& pci) {
  if (pci.numa.size() != 1) {
    row.insert(row.end(), {"N/A", "N/A"});
    return;
  }
  const NumaNode& node = topology.numa_nodes()[pci.numa.front()];
  row.push_back(node.cpus.empty() ? "N/A" : node.cpus.to_string());
  row.push_back(std::to_string(node.os_index));
}

/// Pads each column to its widest cell: with tabs between, cells align and can be split.
std::string aligned(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
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

}  // namespace

std::string to_matrix(const Topology& topology) {
  const Devices devices = devices_of(topology);
  if (devices.nodes.empty()) return "no GPU and no NIC on this host\n";

  bool node_assumed = false, phb_assumed = false;
  Row header{""};
  header.insert(header.end(), devices.headings.begin(), devices.headings.end());
  header.insert(header.end(), {"CPU Affinity", "NUMA Affinity"});
  std::vector<Row> rows{header};
  for (std::size_t a = 0; a < devices.nodes.size(); ++a) {
    Row row{devices.headings[a]};
    for (std::size_t b = 0; b < devices.nodes.size(); ++b) {
      const Path way = path(topology, devices.nodes[a], devices.nodes[b]);
      node_assumed = node_assumed || (way.locality_assumed && way.path_class == PathClass::node);
      phb_assumed = phb_assumed || (way.locality_assumed && way.path_class == PathClass::phb);
      row.push_back(a == b ? " X " : cell_of(way));
    }
    if (devices.nodes[a].kind == NodeKind::gpu) {
      add_affinity(row, topology, topology.pci(devices.nodes[a]));
    }
    rows.push_back(std::move(row));
  }
  std::string text = aligned(rows);
  text += kLegend;
  text += nic_legend(topology);
  if (node_assumed) {
    text +=
        "\nThis host does not say which NUMA node its devices are near: NODE may be SYS in "
        "truth.\n";
  }
  if (phb_assumed) {
    text += "\nThis source does not tell host bridges apart: PHB may be NODE in truth.\n";
  }
  return text;
}

}  // namespace xylem::topology
