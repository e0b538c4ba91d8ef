// SPDX-License-Identifier: Apache-2.0
//
// Computes the hash over a machine's hardware.
#include "xylem/topology/fingerprint.h"

#include "xylem/base/hash.h"
#include "xylem/topology/path.h"

#include <fmt/format.h>

namespace xylem::topology {
namespace {

/// The value as a word to hash. An absent value and zero must have different hashes.
std::uint64_t word(const std::optional<std::uint32_t>& value) {
  return value ? std::uint64_t{*value} + 1 : 0;
}

std::uint64_t add_processors(std::uint64_t hash, const Topology& topology) {
  hash = combine(hash, topology.packages().size());
  for (const Package& package : topology.packages()) {
    hash = hash_text(package.cpu_model, hash);
    hash = combine(hash, word(package.cores));
    hash = combine(hash, package.cpus.count());
  }
  hash = combine(hash, topology.numa_nodes().size());
  for (const NumaNode& node : topology.numa_nodes()) hash = combine(hash, word(node.package));
  return hash;
}

std::uint64_t add_model(std::uint64_t hash, const PciDevice& device) {
  hash = combine(hash, std::uint64_t{device.id.vendor} << 16 | device.id.device);
  return combine(hash, device.numa.size() == 1 ? device.numa.front() + 1 : 0);
}

}  // namespace

std::string Fingerprint::to_string() const { return fmt::format("{:016x}", value); }

Fingerprint fingerprint(const Topology& topology) {
  // The seed is the version of the list of hashed facts.
  std::uint64_t hash = add_processors(1, topology);
  const auto nics = topology.fabric_nics();
  hash = combine(hash, topology.gpus().size());
  for (const Gpu& gpu : topology.gpus()) {
    hash = add_model(hash, gpu.pci);
    hash = combine(hash, gpu.partitions.size());
  }
  hash = combine(hash, nics.size());
  for (const std::uint32_t nic : nics) hash = add_model(hash, topology.nics()[nic].pci);

  for (std::uint32_t a = 0; a < topology.gpus().size(); ++a) {
    const NodeRef gpu{NodeKind::gpu, a};
    for (std::uint32_t b = 0; b < a; ++b) {
      hash = combine(
          hash, static_cast<std::uint64_t>(path(topology, gpu, {NodeKind::gpu, b}).path_class));
    }
    for (const std::uint32_t nic : nics) {
      hash = combine(
          hash, static_cast<std::uint64_t>(path(topology, gpu, {NodeKind::nic, nic}).path_class));
    }
  }
  return {hash};
}

}  // namespace xylem::topology
