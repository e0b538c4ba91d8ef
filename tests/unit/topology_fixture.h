// SPDX-License-Identifier: Apache-2.0
//
// The machines in tests/golden/topology, and small machines that are made in code.
#pragma once

#include "xylem/topology/path.h"
#include "xylem/topology/readers.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

namespace xylem::topology::test {

inline std::string golden_path(const std::string& name) {
  return XYLEM_TEST_DATA "/golden/topology/" + name;
}

inline std::string file_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// The topology of a golden file, which must be readable.
inline Topology golden(const std::string& name) {
  auto topology = read_file(golden_path(name));
  if (!topology) {
    ADD_FAILURE() << topology.status().to_string();
    Machine empty;
    empty.numa_nodes.emplace_back();
    topology = Topology::create(empty);
  }
  return *topology;
}

/// A machine described by one line, which must be valid.
inline Topology described(const std::string& text) {
  auto topology = read_synthetic(text, "test");
  EXPECT_TRUE(topology.is_ok()) << topology.status().to_string();
  return *topology;
}

inline NodeRef gpu(std::uint32_t index) { return {NodeKind::gpu, index}; }
inline NodeRef nic(std::uint32_t index) { return {NodeKind::nic, index}; }
inline NodeRef nvswitch(std::uint32_t index) { return {NodeKind::nvswitch, index}; }

/// A machine with one package, one NUMA node and one host bridge that has nothing below it.
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

/// A PCI function on bus `bus` below `parent`, near NUMA node 0, with a link of `gigabytes` per
/// second.
inline PciDevice function(std::uint8_t bus, NodeRef parent, double gigabytes) {
  PciDevice pci;
  pci.address.bus = bus;
  pci.parent = parent;
  pci.numa = {0};
  if (gigabytes > 0) pci.uplink = Rate{GBps{gigabytes}, Origin::read, {}, {}};
  return pci;
}

}  // namespace xylem::topology::test
