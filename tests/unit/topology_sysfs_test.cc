// SPDX-License-Identifier: Apache-2.0
//
// The facts that discovery reads from sysfs, in made-up trees for each test. Also discovery of the
// machine that runs the test, for which only general facts can be checked.
#include "support/temporary_directory.h"
#include "unit/topology_fixture.h"
#include "xylem/topology/discover.h"
#include "xylem/topology/writers.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>

namespace xylem::topology::test {
namespace {

using testing::ElementsAre;
using xylem::test::TemporaryDirectory;
namespace fs = std::filesystem;

/// A directory with the structure of /sys, which is removed after the test.
class FakeSysfs : public testing::Test {
 protected:
  void file(const std::string& path, const std::string& text) const {
    tree.write(path, text + "\n");
  }

  void link(const std::string& path, const std::string& target) const {
    fs::create_directories(root / target);
    fs::create_directories((root / path).parent_path());
    fs::create_directory_symlink(root / target, root / path);
  }

  /// Creates the symbolic link, by address, to the directory of a PCI function.
  void pci(const std::string& directory) const {
    link("bus/pci/devices/" + fs::path(directory).filename().string(), directory);
  }

  /// Creates an interface. As in the kernel, its directory is in the directory of its device.
  void interface(const std::string& name, const std::string& device) const {
    link("class/net/" + name, device + "/net/" + name);
    link(device + "/net/" + name + "/device", device);
  }

  /// Creates an RDMA device of a PCI function, and returns its directory.
  std::string rdma(const std::string& name, const std::string& function) const {
    const std::string device = function + "/infiniband/" + name;
    link("class/infiniband/" + name, device);
    link(device + "/device", function);
    return device;
  }

  Machine read(Machine machine) const {
    add_sysfs_facts(machine, root.string());
    must(Topology::create(machine).status());
    return machine;
  }

  const TemporaryDirectory tree;
  const fs::path root = tree.path();
};

/// A root port with a NIC (0000:02:00.0) and a GPU (0000:03:00.0) below it.
Machine nic_and_gpu() {
  Machine machine = plain_machine();
  machine.bridges.push_back({function(1, kRoot, 0), 2, 3});
  machine.nics.emplace_back().pci = function(2, bridge(0), 0);
  machine.gpus.emplace_back().pci = function(3, bridge(0), 1.25);
  return machine;
}

constexpr const char* kPort = "devices/pci0000:00/0000:01:00.0";
constexpr const char* kNic = "devices/pci0000:00/0000:01:00.0/0000:02:00.0";
constexpr const char* kGpuFolder = "devices/pci0000:00/0000:01:00.0/0000:03:00.0";

TEST_F(FakeSysfs, EmptyOrMissingTreeLeavesTheFactsAlone) {
  Machine expected = nic_and_gpu();
  expected.nics[0].name = "0000:02:00.0";
  EXPECT_EQ(read(nic_and_gpu()), expected);
  Machine machine = nic_and_gpu();
  add_sysfs_facts(machine, "/nonexistent");
  EXPECT_EQ(machine, expected);
}

TEST_F(FakeSysfs, InterfaceHasStateRateMtuDriverAndNic) {
  interface("eth7", kNic);
  file(std::string(kNic) + "/net/eth7/operstate", "up");
  file(std::string(kNic) + "/net/eth7/speed", "25000");
  file(std::string(kNic) + "/net/eth7/mtu", "9000");
  link(std::string(kNic) + "/driver", "bus/pci/drivers/mlx5_core");
  const Machine machine = read(nic_and_gpu());
  EXPECT_THAT(machine.interfaces,
              ElementsAre(NetInterface{"eth7", InterfaceKind::physical, InterfaceState::up,
                                       GBps{3.125}, 9000, "mlx5_core", 0}));
  EXPECT_EQ(machine.nics[0].name, "eth7");
}

TEST_F(FakeSysfs, InterfaceOfAVirtioDeviceBelongsToThePciFunctionAround) {
  const std::string virtio = std::string(kNic) + "/virtio0";
  interface("eth0", virtio);
  link(virtio + "/driver", "bus/virtio/drivers/virtio_net");
  file(virtio + "/net/eth0/speed", "-1");
  const Machine machine = read(nic_and_gpu());
  ASSERT_EQ(machine.interfaces.size(), 1U);
  EXPECT_EQ(machine.interfaces[0].nic, 0U);
  EXPECT_EQ(machine.interfaces[0].driver, "virtio_net");
  EXPECT_EQ(machine.interfaces[0].rate, std::nullopt) << "-1 is no speed";
}

TEST_F(FakeSysfs, KindsOfInterfacesAreToldApart) {
  file("devices/virtual/net/lo/type", "772");
  file("devices/virtual/net/docker0/bridge/bridge_id", "8000");
  file("devices/virtual/net/bond0/bonding/slaves", "eth0 eth1");
  file("devices/virtual/net/veth1/type", "1");
  for (const char* name : {"lo", "docker0", "bond0", "veth1"}) {
    link(std::string("class/net/") + name, std::string("devices/virtual/net/") + name);
  }
  file("class/net/bonding_masters", "bond0");  // In the kernel, this file is among the interfaces.
  const Machine machine = read(plain_machine());
  ASSERT_EQ(machine.interfaces.size(), 4U);
  EXPECT_EQ(machine.interfaces[0].kind, InterfaceKind::bond);
  EXPECT_EQ(machine.interfaces[1].kind, InterfaceKind::bridge);
  EXPECT_EQ(machine.interfaces[2].kind, InterfaceKind::loopback);
  EXPECT_EQ(machine.interfaces[3].kind, InterfaceKind::other_virtual);
  for (const NetInterface& interface : machine.interfaces) EXPECT_EQ(interface.nic, std::nullopt);
}

TEST_F(FakeSysfs, StateOfAnInterfaceWithoutLinkDetectionIsItsCarrier) {
  file("class/net/a/operstate", "unknown");
  file("class/net/a/carrier", "1");
  file("class/net/b/operstate", "unknown");
  file("class/net/c/operstate", "lowerlayerdown");
  file("class/net/d/mtu", "1500");
  const auto state = [](InterfaceState expected) {
    return testing::Field(&NetInterface::state, expected);
  };
  EXPECT_THAT(read(plain_machine()).interfaces,
              ElementsAre(state(InterfaceState::up), state(InterfaceState::unknown),
                          state(InterfaceState::down), state(InterfaceState::unknown)));
}

TEST_F(FakeSysfs, FactsJoinThoseThatHwlocFound) {
  Machine machine = nic_and_gpu();
  machine.interfaces.push_back({"ib0", {}, {}, {}, {}, {}, 0});
  file("class/net/ib0/operstate", "up");
  machine = read(machine);
  ASSERT_EQ(machine.interfaces.size(), 1U);
  EXPECT_EQ(machine.interfaces[0].state, InterfaceState::up);
  EXPECT_EQ(machine.interfaces[0].nic, 0U) << "known from hwloc and not from this sysfs";
}

TEST_F(FakeSysfs, RdmaDeviceMakesAFabricNicWithPorts) {
  const std::string device = rdma("mlx5_0", kNic);
  file(device + "/ports/1/state", "4: ACTIVE");
  file(device + "/ports/1/rate", "200 Gb/sec (4X HDR)");
  file(device + "/ports/1/link_layer", "InfiniBand");
  file(device + "/ports/2/state", "1: DOWN");
  file(device + "/ports/2/rate", "2.5 Gb/sec (1X SDR)");
  file(device + "/ports/2/link_layer", "Ethernet");
  Machine machine = nic_and_gpu();
  // The port as hwloc reports it.
  machine.nics[0].ports.push_back({"mlx5_0", 1, PortState::unknown, {}, {}});
  machine = read(machine);
  EXPECT_TRUE(machine.nics[0].fabric);
  EXPECT_EQ(machine.nics[0].name, "mlx5_0");
  EXPECT_THAT(machine.nics[0].ports,
              ElementsAre(Port{"mlx5_0", 1, PortState::active, LinkLayer::infiniband, GBps{25}},
                          Port{"mlx5_0", 2, PortState::down, LinkLayer::ethernet, GBps{0.3125}}));
}

TEST_F(FakeSysfs, PortTellsItsGidsButNotTheirAddresses) {
  const std::string port = rdma("mlx5_0", kNic) + "/ports/1/";
  file(port + "state", "4: ACTIVE");
  file(port + "link_layer", "Ethernet");
  const auto gid = [&](int index, const std::string& address, const std::string& type) {
    file(port + "gids/" + std::to_string(index), address);
    if (type.empty()) return;  // The kernel refuses to read these files of an empty entry.
    file(port + "gid_attrs/types/" + std::to_string(index), type);
    file(port + "gid_attrs/ndevs/" + std::to_string(index), "eth4");
  };
  gid(0, "fe80:0000:0000:0000:0e42:a1ff:fe00:0001", "IB/RoCE v1");
  gid(1, "fe80:0000:0000:0000:0e42:a1ff:fe00:0001", "RoCE v2");
  gid(2, "0000:0000:0000:0000:0000:0000:0000:0000", "");
  gid(3, "0000:0000:0000:0000:0000:ffff:0a00:0007", "RoCE v2");
  gid(4, "2001:0db8:0000:0000:0000:0000:0000:0007", "RoCE v2");
  Port read_port = read(nic_and_gpu()).nics[0].ports.at(0);
  EXPECT_EQ(read_port.interface, "eth4");
  EXPECT_THAT(read_port.gids, ElementsAre(Gid{0, GidType::roce_v1, GidScope::link_local},
                                          Gid{1, GidType::roce_v2, GidScope::link_local},
                                          Gid{3, GidType::roce_v2, GidScope::ipv4},
                                          Gid{4, GidType::roce_v2, GidScope::global}));
  // The best GID is removed each time. So GIDs are returned in the order of preferred_gid(): RoCE
  // v2 with IPv4, with global IPv6, with a link-local address, and then RoCE v1.
  for (const std::uint32_t best : {3U, 4U, 1U, 0U}) {
    ASSERT_NE(preferred_gid(read_port), nullptr);
    EXPECT_EQ(preferred_gid(read_port)->index, best);
    std::erase_if(read_port.gids, [&](const Gid& entry) { return entry.index == best; });
  }
  EXPECT_EQ(preferred_gid(read_port), nullptr);
}

TEST(PreferredGid, TakesNoneOfUnknownTypeAndV1ByScope) {
  Port port{"mlx5_0", 1, PortState::active, LinkLayer::ethernet, {}};
  port.gids = {{0, GidType::unknown, GidScope::ipv4}};
  EXPECT_EQ(preferred_gid(port), nullptr);
  port.gids.push_back({1, GidType::roce_v1, GidScope::link_local});
  port.gids.push_back({4, GidType::roce_v1, GidScope::ipv4});
  EXPECT_EQ(preferred_gid(port)->index, 4U);
}

TEST_F(FakeSysfs, IwarpHasNoGids) {
  const std::string device = rdma("cxgb4_0", kNic);
  file(device + "/node_type", "4: RNIC");
  file(device + "/ports/1/link_layer", "Ethernet");
  file(device + "/ports/1/gids/0", "0007:4300:0000:0001:0000:0000:0000:0000");
  file(device + "/ports/1/gid_attrs/types/0", "IB/RoCE v1");
  EXPECT_THAT(read(nic_and_gpu()).nics[0].ports.at(0).gids, ElementsAre());
}

TEST_F(FakeSysfs, GidOfInfinibandIsNoRoce) {
  const std::string device = rdma("mlx5_0", kNic);
  file(device + "/ports/1/link_layer", "InfiniBand");
  file(device + "/ports/1/gids/0", "fe80:0000:0000:0000:0e42:a103:0000:0001");
  file(device + "/ports/1/gid_attrs/types/0", "IB/RoCE v1");
  EXPECT_THAT(read(nic_and_gpu()).nics[0].ports.at(0).gids,
              ElementsAre(Gid{0, GidType::infiniband, GidScope::link_local}));
}

TEST_F(FakeSysfs, MemberOfABondNamesIt) {
  file("class/net/bond0/bonding/mode", "802.3ad 4");
  file("class/net/br0/bridge/bridge_id", "8000.000000000000");
  file("class/net/eth0/mtu", "9000");
  file("class/net/eth1/mtu", "9000");
  link("class/net/eth0/master", "class/net/bond0");
  link("class/net/eth1/master", "class/net/br0");  // A bridge also has members, but is no bond.
  const Machine machine = read(plain_machine());
  ASSERT_EQ(machine.interfaces.size(), 4U);
  EXPECT_EQ(machine.interfaces[2].bond, "bond0");
  EXPECT_EQ(machine.interfaces[3].bond, "");
}

TEST_F(FakeSysfs, RdmaDeviceOfAnUnknownFunctionIsNotInvented) {
  file(rdma("mlx5_7", "devices/pci0000:00/0000:07:00.0") + "/ports/1/state", "4: ACTIVE");
  const Machine machine = read(nic_and_gpu());
  ASSERT_EQ(machine.nics.size(), 1U);
  EXPECT_FALSE(machine.nics[0].fabric);
}

TEST_F(FakeSysfs, RdmaInSoftwareIsANicOfNoFunction) {
  interface("eth0", kNic);
  for (const char* const name : {"rxe1", "rxe0"}) {
    const std::string device = std::string("devices/virtual/infiniband/") + name;
    link(std::string("class/infiniband/") + name, device);
    file(device + "/parent", "eth0");
    file(device + "/ports/1/state", "4: ACTIVE");
    file(device + "/ports/1/link_layer", "Ethernet");
  }
  const Machine machine = read(nic_and_gpu());
  ASSERT_EQ(machine.nics.size(), 3U);
  for (const std::size_t i : {1U, 2U}) {
    const Nic& nic = machine.nics[i];
    EXPECT_EQ(nic.name, i == 1 ? "rxe0" : "rxe1");
    EXPECT_TRUE(nic.is_virtual && nic.fabric);
    EXPECT_EQ(nic.pci.numa, machine.nics[0].pci.numa) << "near the same NUMA node as eth0";
    EXPECT_THAT(nic.ports,
                ElementsAre(Port{nic.name, 1, PortState::active, LinkLayer::ethernet, {}}));
  }
}

TEST_F(FakeSysfs, RdmaInSoftwareIsNoRailBesideHardware) {
  rdma("mlx5_0", kNic);
  link("class/infiniband/rxe0", "devices/virtual/infiniband/rxe0");
  const Machine machine = read(nic_and_gpu());
  ASSERT_EQ(machine.nics.size(), 2U);
  EXPECT_TRUE(machine.nics[0].fabric);
  EXPECT_FALSE(machine.nics[1].fabric);
}

TEST_F(FakeSysfs, PcieLinkHasItsPresentWidthAtTheSpeedOfBothEnds) {
  pci(kPort);
  pci(kGpuFolder);
  file(std::string(kPort) + "/max_link_speed", "16.0 GT/s PCIe");
  file(std::string(kPort) + "/current_link_width", "16");
  file(std::string(kGpuFolder) + "/max_link_speed", "32.0 GT/s PCIe");
  file(std::string(kGpuFolder) + "/current_link_speed", "2.5 GT/s PCIe");  // The GPU saves power.
  file(std::string(kGpuFolder) + "/max_link_width", "16");
  // The slot has fewer lanes than the GPU.
  file(std::string(kGpuFolder) + "/current_link_width", "8");
  const Machine machine = read(nic_and_gpu());
  EXPECT_EQ(machine.gpus[0].pci.uplink, pcie_rate(16, 8));
  EXPECT_EQ(machine.bridges[0].pci.uplink, pcie_rate(16, 16));
  EXPECT_EQ(machine.nics[0].pci.uplink, Rate{}) << "the NIC's directory is missing";
}

TEST_F(FakeSysfs, LinkThatIsDownOrVirtualKeepsWhatHwlocRead) {
  pci(kGpuFolder);
  pci(kNic);
  file(std::string(kGpuFolder) + "/max_link_speed", "Unknown");
  file(std::string(kGpuFolder) + "/current_link_width", "16");
  file(std::string(kNic) + "/max_link_speed", "8 GT/s");
  file(std::string(kNic) + "/current_link_width", "0");
  const Machine machine = read(nic_and_gpu());
  EXPECT_EQ(machine.gpus[0].pci.uplink.bandwidth, GBps{1.25});
  EXPECT_EQ(machine.gpus[0].pci.uplink.origin, Origin::read);
  EXPECT_EQ(machine.nics[0].pci.uplink, Rate{});
}

TEST_F(FakeSysfs, VirtualFunctionKnowsItsPhysicalOne) {
  pci(kNic);
  link(std::string(kNic) + "/physfn", "devices/pci0000:00/0000:01:00.0/0000:02:01.0");
  EXPECT_EQ(read(nic_and_gpu()).nics[0].physical_function, *PciAddress::parse("0000:02:01.0"));
}

TEST_F(FakeSysfs, HostileTextDoesNoHarm) {
  file("class/net/a\x1b[2J/operstate", std::string(1 << 20, 'u'));
  file("class/net/a\x1b[2J/speed", "99999999999999999999");
  file("class/net/b/mtu", "-5");
  const Machine machine = read(plain_machine());
  ASSERT_EQ(machine.interfaces.size(), 2U);
  EXPECT_EQ(machine.interfaces[0].name, "a?[2J");
  EXPECT_EQ(machine.interfaces[0].rate, std::nullopt);
  EXPECT_EQ(machine.interfaces[1].mtu, std::nullopt);
}

TEST_F(FakeSysfs, PciDatabaseNamesWhatHasNoNameYet) {
  file("pci.ids",
       "# comment\n10de  NVIDIA Corporation\n\t2330  GH100 [H100 SXM5 80GB]\n\t\t10de 16c1  A "
       "board\n"
       "\tzzzz  no number\n15b3  Mellanox Technologies\n\t1021  MT2910 Family [ConnectX-7]\n"
       "C 02  Network controller\n\t1021  not a device");
  Machine machine = nic_and_gpu();
  machine.gpus[0].pci.id = {0x10de, 0x2330, 0x10de, 0x16c1};
  machine.nics[0].pci.id = {0x15b3, 0x1021, 0, 0};
  machine.nics[0].pci.vendor = "as hwloc said";
  ASSERT_TRUE(add_pci_names(machine, (root / "pci.ids").string()));
  EXPECT_EQ(machine.gpus[0].pci.vendor, "NVIDIA Corporation");
  EXPECT_EQ(machine.gpus[0].model, "GH100 [H100 SXM5 80GB]");
  EXPECT_EQ(machine.nics[0].pci.vendor, "as hwloc said");
  EXPECT_EQ(machine.nics[0].pci.model, "MT2910 Family [ConnectX-7]");
  EXPECT_EQ(machine.bridges[0].pci.model, "") << "a vendor that the database does not have";
  EXPECT_FALSE(add_pci_names(machine, (root / "missing").string()));
}

TEST(Discovery, FindsThisMachine) {
  const auto topology = value_of(discover());
  EXPECT_GE(topology.numa_nodes().size(), 1U);
  std::uint32_t cpus = 0;
  for (const NumaNode& node : topology.numa_nodes()) cpus += node.cpus.count();
  EXPECT_GE(cpus, 1U);
  EXPECT_THAT(to_tree(topology), testing::HasSubstr("NUMA node"));
  const auto back = value_of(read_json(to_json(topology), "json"));
  EXPECT_EQ(back, topology);
}

TEST(Discovery, IsRepeatable) {
  const auto first = discover({.sysfs_root = "/nonexistent"});
  const auto second = discover({.sysfs_root = "/nonexistent"});
  ASSERT_TRUE(first.is_ok() && second.is_ok());
  EXPECT_EQ(*first, *second);
}

TEST(Discovery, RefusesAnotherMachineOutOfTheEnvironment) {
  ASSERT_EQ(setenv("HWLOC_SYNTHETIC", "pack:7 core:3 pu:1", 1), 0);
  const auto topology = discover();
  unsetenv("HWLOC_SYNTHETIC");
  EXPECT_THAT(topology, fails_as(Code::unsupported, "unset HWLOC_XMLFILE"));
}

}  // namespace
}  // namespace xylem::topology::test
