// SPDX-License-Identifier: Apache-2.0
//
// Turns a description into a machine. Things that are counted for the whole host are spread over
// their places in order, as evenly as possible.
#include "source.h"
#include "synthetic/description.h"
#include "xylem/base/check.h"
#include "xylem/topology/readers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace xylem::topology {
namespace synthetic {
namespace {

constexpr double kNvlink = 25;  ///< GB/s of one NVLink, V100 to H100.
constexpr double kXgmi = 64;    ///< GB/s of one XGMI link of an MI300.

/// NVLinks between the GPUs of a host with eight V100-SXM2, as nvidia-smi shows them (nccl-tests,
/// issue 29).
constexpr std::array<std::array<std::uint8_t, 8>, 8> kCube{{{0, 2, 2, 1, 1, 0, 0, 0},
                                                            {2, 0, 1, 2, 0, 1, 0, 0},
                                                            {2, 1, 0, 1, 0, 0, 2, 0},
                                                            {1, 2, 1, 0, 0, 0, 0, 2},
                                                            {1, 0, 0, 0, 0, 2, 2, 1},
                                                            {0, 1, 0, 0, 2, 0, 1, 2},
                                                            {0, 0, 2, 0, 2, 1, 0, 1},
                                                            {0, 0, 0, 2, 1, 2, 1, 0}}};

/// The place for number `item` of `items` when they are spread over `places`. Requires item <
/// items.
std::uint32_t spread(std::uint32_t item, std::uint32_t items, std::uint32_t places) {
  XYLEM_CHECK(item < items, item, items);
  return static_cast<std::uint32_t>(std::uint64_t{item} * places / items);
}

class Maker {
 public:
  Maker(const Description& description, std::string_view source)
      : description_(description), source_(source) {}

  Result<Machine> make() {
    machine_.product = "synthetic";
    XYLEM_TRY(count());
    add_processors();
    XYLEM_TRY(add_devices());
    XYLEM_TRY(add_links());
    return std::move(machine_);
  }

 private:
  Status wrong(std::string_view rule) const {
    return failure(Code::invalid_argument, fmt::format("{}: {}", source_, rule));
  }

  std::uint64_t total(const Count& count) const {
    const std::uint64_t each = count.each;
    switch (count.per) {
      case Per::host: return each;
      case Per::package: return each * description_.packages;
      case Per::numa: return each * numa_;
      case Per::pcie_switch: return each * switches_;
      case Per::gpu: return each * gpus_;
    }
    return each;
  }

  Status count() {
    const auto within = [&](std::uint64_t number, std::size_t limit, std::string_view what) {
      if (number <= limit) return Status::ok();
      return wrong(fmt::format("{} {} are more than the {} a host may have", number, what, limit));
    };
    XYLEM_TRY(within(description_.packages, kMaxPackages, "packages"));
    numa_ = total(description_.numa);
    XYLEM_TRY(within(numa_, kMaxNumaNodes, "NUMA nodes"));
    if (numa_ % description_.packages != 0) {
      return wrong(fmt::format("{} NUMA nodes do not divide among {} packages", numa_,
                               description_.packages));
    }
    XYLEM_TRY(within(total(description_.cores), kMaxCpu + 1, "cores"));
    switches_ = total(description_.switches);
    const bool by_switch =
        description_.gpus.per == Per::pcie_switch || description_.nics.per == Per::pcie_switch;
    if (by_switch && switches_ == 0) {
      return wrong("things are counted for each switch, but no switches are: say \"4 switches\"");
    }
    gpus_ = total(description_.gpus);
    XYLEM_TRY(within(gpus_, kMaxGpus, "GPUs"));
    nics_ = total(description_.nics);
    XYLEM_TRY(within(nics_, kMaxNics, "NICs"));
    // NICs that are counted for each GPU share a switch with their GPU.
    if (switches_ == 0 && nics_ > 0 && description_.nics.per == Per::gpu) switches_ = gpus_;
    XYLEM_TRY(within(switches_, kMaxBridges, "switches"));
    return check_places();
  }

  /// If GPUs or NICs are counted for each package or NUMA node, all packages or nodes must have the
  /// same number of places.
  Status check_places() const {
    const std::uint64_t places = switches_ > 0 ? switches_ : numa_;
    const auto divides = [&](Per per) {
      if (per == Per::package) return places % description_.packages == 0;
      return per != Per::numa || places % numa_ == 0;
    };
    const bool fits = divides(description_.gpus.per) && divides(description_.nics.per);
    if (fits) return Status::ok();
    return wrong(
        fmt::format("{} switches do not divide among what GPUs or NICs are counted for", places));
  }

  void add_processors() {
    const auto packages = description_.packages;
    const auto numa = static_cast<std::uint32_t>(numa_);
    const auto cores = static_cast<std::uint32_t>(total(description_.cores));
    for (std::uint32_t i = 0; i < packages; ++i) {
      machine_.packages.push_back({i, "", 0, {}});
    }
    for (std::uint32_t i = 0; i < numa; ++i) {
      NumaNode node;
      node.os_index = i;
      node.package = spread(i, numa, packages);
      node.cores = 0;
      machine_.numa_nodes.push_back(node);
    }
    for (std::uint32_t cpu = 0; cpu < cores; ++cpu) {
      const std::uint32_t at = spread(cpu, cores, numa);
      NumaNode& node = machine_.numa_nodes[at];
      Package& package = machine_.packages[spread(at, numa, packages)];
      for (CpuSet* cpus : {&node.cpus, &package.cpus}) cpus->add(cpu, cpu);
      node.cores = node.cores.value_or(0) + 1;
      package.cores = package.cores.value_or(0) + 1;
    }
  }

  /// A place for devices: below a switch or, without switches, below the host bridge of a NUMA
  /// node.
  struct Place {
    std::uint32_t numa = 0;
    std::uint32_t gpus = 0;
    std::uint32_t nics = 0;
  };

  std::vector<Place> places() const {
    const auto numa = static_cast<std::uint32_t>(numa_);
    const auto count = static_cast<std::uint32_t>(switches_ > 0 ? switches_ : numa_);
    std::vector<Place> all(count);
    for (std::uint32_t i = 0; i < count; ++i) all[i].numa = spread(i, count, numa);
    const auto gpus = static_cast<std::uint32_t>(gpus_);
    for (std::uint32_t i = 0; i < gpus; ++i) ++all[spread(i, gpus, count)].gpus;
    const auto nics = static_cast<std::uint32_t>(nics_);
    for (std::uint32_t i = 0; i < nics; ++i) {
      const bool of_gpu = description_.nics.per == Per::gpu;
      const std::uint32_t gpu = of_gpu ? i / description_.nics.each : 0;
      ++all[of_gpu ? spread(gpu, gpus, count) : spread(i, nics, count)].nics;
    }
    return all;
  }

  Status add_devices() {
    for (const Place& place : places()) {
      const std::uint32_t devices = place.gpus + place.nics;
      if (devices == 0) continue;
      // One bus each for the host bridge, the switch and every device.
      constexpr std::uint32_t kBuses = 256;
      if (devices + 2 > kBuses) {
        return wrong(fmt::format("{} devices below one {}: PCI has {} buses", devices,
                                 switches_ > 0 ? "switch" : "NUMA node", kBuses));
      }
      if (bus_ + devices + 2 > kBuses) {
        bus_ = 0;
        ++domain_;
      }
      HostBridge root;
      root.domain = domain_;
      root.first_bus = static_cast<std::uint8_t>(bus_);
      root.last_bus = static_cast<std::uint8_t>(bus_ + devices + 1);
      root.numa = {place.numa};
      NodeRef parent{NodeKind::host_bridge,
                     static_cast<std::uint32_t>(machine_.host_bridges.size())};
      machine_.host_bridges.push_back(std::move(root));
      ++bus_;
      if (switches_ > 0) parent = add_switch(parent, place);
      for (std::uint32_t i = 0; i < place.gpus; ++i) add_gpu(parent, place.numa);
      for (std::uint32_t i = 0; i < place.nics; ++i) add_nic(parent, place.numa);
    }
    return Status::ok();
  }

  PciDevice function(NodeRef parent, std::uint32_t numa, std::uint16_t pci_class) {
    PciDevice pci;
    pci.address.domain = domain_;
    pci.address.bus = static_cast<std::uint8_t>(bus_++);
    pci.pci_class = pci_class;
    pci.parent = parent;
    pci.numa = {numa};
    pci.uplink = pcie_rate(description_.pcie_speed, description_.pcie_width);
    return pci;
  }

  NodeRef add_switch(NodeRef parent, const Place& place) {
    Bridge bridge;
    bridge.pci = function(parent, place.numa, kPciBridge);
    bridge.is_switch = true;
    bridge.first_bus = static_cast<std::uint8_t>(bus_);
    bridge.last_bus = static_cast<std::uint8_t>(bus_ + place.gpus + place.nics - 1);
    machine_.bridges.push_back(std::move(bridge));
    return {NodeKind::bridge, static_cast<std::uint32_t>(machine_.bridges.size() - 1)};
  }

  void add_gpu(NodeRef parent, std::uint32_t numa) {
    Gpu gpu;
    gpu.pci = function(parent, numa, k3dController);
    gpu.pci.id.vendor = description_.link_kind == LinkKind::xgmi ? kVendorAmd : kVendorNvidia;
    machine_.gpus.push_back(std::move(gpu));
  }

  void add_nic(NodeRef parent, std::uint32_t numa) {
    Nic nic;
    nic.pci = function(parent, numa, kInfinibandController);
    nic.name = fmt::format("rdma{}", machine_.nics.size());
    nic.fabric = true;
    nic.ports.push_back(
        {nic.name, 1, PortState::active, LinkLayer::infiniband, description_.nic_rate});
    machine_.nics.push_back(std::move(nic));
  }

  void link(NodeRef a, NodeRef b, std::uint32_t width) {
    const LinkKind kind = description_.link_kind;
    const double each = kind == LinkKind::nvlink ? kNvlink : kXgmi;
    machine_.links.push_back({a, b, kind, {GBps{each * width}, Origin::derived, width, {}}});
  }

  Status add_links() {
    const auto gpus = static_cast<std::uint32_t>(gpus_);
    if (description_.fabric != Fabric::none && gpus < 2) return wrong("links need two GPUs");
    if (description_.fabric == Fabric::cube && gpus != kCube.size()) {
      return wrong(fmt::format("a cube has 8 GPUs, not {}", gpus));
    }
    if (description_.fabric == Fabric::nvswitch) add_nvswitch();
    for (std::uint32_t a = 0; a < gpus; ++a) {
      if (description_.fabric == Fabric::nvswitch) {
        link({NodeKind::gpu, a}, {NodeKind::nvswitch, 0}, description_.links);
      }
      for (std::uint32_t b = a + 1; b < gpus; ++b) {
        const std::uint32_t width = links_between(a, b);
        if (width > 0) link({NodeKind::gpu, a}, {NodeKind::gpu, b}, width);
      }
    }
    return Status::ok();
  }

  void add_nvswitch() {
    constexpr std::uint16_t kOtherBridge = 0x0680;
    NvSwitch nvswitch;
    nvswitch.pci.address.domain = domain_ + 1;
    nvswitch.pci.id.vendor = kVendorNvidia;
    nvswitch.pci.pci_class = kOtherBridge;
    for (std::uint32_t i = 0; i < numa_; ++i) nvswitch.pci.numa.push_back(i);
    machine_.nvswitches.push_back(std::move(nvswitch));
  }

  std::uint32_t links_between(std::uint32_t a, std::uint32_t b) const {
    const auto gpus = static_cast<std::uint32_t>(gpus_);
    switch (description_.fabric) {
      case Fabric::none:
      case Fabric::nvswitch: return 0;
      case Fabric::mesh: return description_.links;
      case Fabric::ring: return b == a + 1 || (a == 0 && b == gpus - 1) ? description_.links : 0;
      case Fabric::pairs: return a % 2 == 0 && b == a + 1 ? description_.links : 0;
      case Fabric::cube: return kCube[a][b];
    }
    return 0;
  }

  const Description& description_;
  std::string source_;
  Machine machine_;
  std::uint64_t numa_ = 0, switches_ = 0, gpus_ = 0, nics_ = 0;
  std::uint32_t domain_ = 0;
  std::uint32_t bus_ = 0;
};

}  // namespace
}  // namespace synthetic

Result<Topology> read_synthetic(std::string_view text, std::string_view source) {
  XYLEM_TRY(const auto description, synthetic::parse(text, source));
  XYLEM_TRY(auto machine, synthetic::Maker(description, source).make());
  return create_from(source, std::move(machine));
}

}  // namespace xylem::topology
