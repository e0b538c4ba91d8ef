// SPDX-License-Identifier: Apache-2.0
//
// The machines in tests/golden/topology, and small machines that are created in code.
#pragma once

#include "support/outcome.h"
#include "xylem/topology/path.h"
#include "xylem/topology/readers.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

namespace xylem::topology::test {

/// Machines that each test some features:
inline constexpr const char* kGoldenMachines[] = {
    "ladder.v2.xml",          // every class of path; ports and interfaces; a VGA, which is no GPU
    "flat_vm.v2.xml",         // two NUMA nodes, and devices that may be near either
    "no_numa.v1.xml",         // hwloc's schema 1, without NUMA nodes; a NIC with two ports
    "nccl_dump.xml",          // GPUs not in NCCL's order, NVSwitches, two functions of a card
    "nccl_template.xml",      // no <gpu> and <net>, only the classes of PCI functions
    "rccl_mesh.xml",          // XGMI, some of it to missing GPUs; virtual NICs
    "nvswitch.v3.xml",        // hwloc's schema 3, with types as bits
    "apu_partitions.v2.xml",  // GPUs with partitions, a Cassini NIC
    "h100_vm.v2.xml",         // a virtual machine
    "bare.v2.xml",            // no devices
};

inline std::string golden_path(const std::string& name) {
  return XYLEM_TEST_DATA "/golden/topology/" + name;
}

inline std::string file_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// Returns the topology of a golden file. The test fails if it cannot be read.
inline Topology golden(const std::string& name) { return value_of(read_file(golden_path(name))); }

/// Returns a machine described by one line. The test fails if the description is invalid.
inline Topology described(const std::string& text) {
  return value_of(read_synthetic(text, "test"));
}

inline NodeRef gpu(std::uint32_t index) { return {NodeKind::gpu, index}; }
inline NodeRef nic(std::uint32_t index) { return {NodeKind::nic, index}; }
inline NodeRef nvswitch(std::uint32_t index) { return {NodeKind::nvswitch, index}; }
inline NodeRef bridge(std::uint32_t index) { return {NodeKind::bridge, index}; }
/// The first host bridge.
inline constexpr NodeRef kRoot{NodeKind::host_bridge, 0};

/// Returns `text` with `to` in place of the first `from`. The text must contain `from`.
inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

/// A machine with one package, one NUMA node and one host bridge without devices.
inline Machine plain_machine() {
  Machine machine;
  machine.packages.push_back({0, "CPU", 2, {}});
  machine.packages.front().cpus.add(0, 1);
  NumaNode node;
  node.package = 0;
  node.cores = 2;
  node.cpus = machine.packages.front().cpus;
  machine.numa_nodes.push_back(node);
  machine.host_bridges.push_back({0, 0, 0xff, {0}});
  return machine;
}

/// A PCI function on bus `bus` below `parent`, near NUMA node 0. Its link has a bandwidth of
/// `gigabytes` GB/s.
inline PciDevice function(std::uint8_t bus, NodeRef parent, double gigabytes) {
  PciDevice pci;
  pci.address.bus = bus;
  pci.parent = parent;
  pci.numa = {0};
  if (gigabytes > 0) pci.uplink = Rate{GBps{gigabytes}, Origin::read, {}, {}};
  return pci;
}

}  // namespace xylem::topology::test
