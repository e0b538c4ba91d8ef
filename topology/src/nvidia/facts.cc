// SPDX-License-Identifier: Apache-2.0
#include "nvidia/facts.h"

#include "gpu_links.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

namespace xylem::topology::nvidia {
namespace {

std::uint32_t index_of(const Machine& machine, const PciAddress& address) {
  const auto at = std::ranges::lower_bound(machine.gpus, address, {},
                                           [](const Gpu& gpu) { return gpu.pci.address; });
  return static_cast<std::uint32_t>(at - machine.gpus.begin());
}

/// The GPU to which `of_gpu` refers. It is added if the machine does not have it. Null if the
/// machine has kMaxGpus GPUs already.
Gpu* gpu_of(Machine& machine, const GpuFacts& of_gpu) {
  const std::uint32_t index = index_of(machine, of_gpu.address);
  const auto at = machine.gpus.begin() + index;
  if (at != machine.gpus.end() && at->pci.address == of_gpu.address) return &*at;
  if (machine.gpus.size() >= kMaxGpus) return nullptr;
  for (Link& link : machine.links) {
    for (NodeRef* end : {&link.a, &link.b}) {
      if (end->kind == NodeKind::gpu && end->index >= index) ++end->index;
    }
  }
  for (GpuPair& pair : machine.gpu_pairs) {
    if (pair.a >= index) ++pair.a;
    if (pair.b >= index) ++pair.b;
  }
  Gpu gpu;
  gpu.pci.address = of_gpu.address;
  gpu.pci.id = of_gpu.id;
  gpu.pci.id.vendor = kVendorNvidia;
  gpu.pci.pci_class = k3dController;
  for (std::uint32_t numa = 0; numa < machine.numa_nodes.size(); ++numa) {
    gpu.pci.numa.push_back(numa);
  }
  return &*machine.gpus.insert(at, std::move(gpu));
}

/// The links that lead to a GPU or NVSwitch of the machine, or to a hidden switch.
std::vector<LinkEnd> ends_of(const Machine& machine, std::span<const GpuFacts> facts) {
  const auto is_switch = [&](const Links& links) {
    return links.is_switch ||
           std::ranges::find(machine.nvswitches, links.target, [](const NvSwitch& one) {
             return one.pci.address;
           }) != machine.nvswitches.end();
  };
  const auto has_gpu = [&](const PciAddress& address) {
    const std::uint32_t index = index_of(machine, address);
    return index < machine.gpus.size() && machine.gpus[index].pci.address == address;
  };
  std::vector<LinkEnd> ends;
  for (const GpuFacts& of_gpu : facts) {
    for (const Links& links : of_gpu.links) {
      if (!has_gpu(of_gpu.address) || !(is_switch(links) || has_gpu(links.target))) continue;
      ends.push_back({index_of(machine, of_gpu.address), LinkKind::nvlink, links.target,
                      is_switch(links), links.count});
    }
  }
  return ends;
}

void complete(Gpu& gpu, const GpuFacts& of_gpu) {
  const auto take = [](auto& known, const auto& fact) {
    if (fact != std::remove_cvref_t<decltype(fact)>()) known = fact;
  };
  take(gpu.model, of_gpu.model);
  take(gpu.uuid, of_gpu.uuid);
  take(gpu.architecture, of_gpu.architecture);
  take(gpu.memory, of_gpu.memory);
  take(gpu.memory_rate, of_gpu.memory_rate);
  take(gpu.nvlinks_down, of_gpu.nvlinks_down);
  take(gpu.pcie_lanes, of_gpu.pcie_lanes);
  take(gpu.ipc, of_gpu.ipc);
  take(gpu.rdma, of_gpu.rdma);
  // sysfs is more precise, since it also reports the speed of the bridge above the GPU.
  if (!gpu.pci.uplink.bandwidth) take(gpu.pci.uplink, of_gpu.pcie);
  // A single MIG instance counts as the whole GPU.
  if (of_gpu.partitions.size() > 1) gpu.partitions = of_gpu.partitions;
}

/// A plain `no` replaces only an earlier `yes`, so that reasons such as `no_by_gpu` are kept. Any
/// other answer replaces the earlier one.
void add_pairs(Machine& machine, std::span<const PairFacts> pairs) {
  for (const PairFacts& of_pair : pairs) {
    const std::uint32_t a = index_of(machine, of_pair.a), b = index_of(machine, of_pair.b);
    const bool are_known = a < machine.gpus.size() && b < machine.gpus.size() && a != b &&
                           machine.gpus[a].pci.address == of_pair.a &&
                           machine.gpus[b].pci.address == of_pair.b;
    if (!are_known) continue;
    const GpuPair pair{std::min(a, b), std::max(a, b), of_pair.access};
    const auto key = [](const GpuPair& one) { return std::pair(one.a, one.b); };
    const auto at = std::ranges::lower_bound(machine.gpu_pairs, key(pair), {}, key);
    if (at == machine.gpu_pairs.end() || key(*at) != key(pair)) {
      machine.gpu_pairs.insert(at, pair);
    } else if (of_pair.access != PeerAccess::no || at->access == PeerAccess::yes) {
      at->access = of_pair.access;
    }
  }
}

}  // namespace

Rate memory_rate_of(double megahertz, double bits) {
  constexpr double kTransfersPerCycle = 2, kBitsPerByte = 8, kMegahertzPerGigahertz = 1e3;
  const GBps bandwidth{kTransfersPerCycle * megahertz / kMegahertzPerGigahertz * bits /
                       kBitsPerByte};
  // No GPU has memory slower than kLeast or faster than kMost.
  constexpr GBps kLeast{1}, kMost{1e5};
  if (!(bandwidth >= kLeast && bandwidth <= kMost)) return {};
  return {bandwidth, Origin::derived, {}, {}};
}

void add_facts(Machine& machine, const Facts& facts) {
  for (const GpuFacts& of_gpu : facts.gpus) {
    Gpu* gpu = gpu_of(machine, of_gpu);
    if (gpu != nullptr) complete(*gpu, of_gpu);
  }
  add_pairs(machine, facts.pairs);
  if (!facts.driver_version.empty()) machine.nvidia.version = facts.driver_version;
  if (!facts.cuda_version.empty()) machine.nvidia.cuda_version = facts.cuda_version;
  const std::vector<LinkEnd> ends = ends_of(machine, facts.gpus);
  if (ends.empty()) return;
  std::erase_if(machine.links, [](const Link& link) { return link.kind == LinkKind::nvlink; });
  add_links(machine, ends);
  std::ranges::sort(machine.links, {},
                    [](const Link& link) { return std::tuple(link.a, link.b, link.kind); });
}

}  // namespace xylem::topology::nvidia
