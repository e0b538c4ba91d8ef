// SPDX-License-Identifier: Apache-2.0
//
// What a host is made of: packages and NUMA nodes, the PCIe tree with GPUs, NICs and NVSwitches at
// its leaves, and the network interfaces of the operating system. Plain values; a Topology holds
// and checks them.
//
//   package ─ NUMA node ─ host bridge ─ bridge ─ bridge ┬ GPU
//                                                       └ NIC ─ port, network interface
#pragma once

#include "xylem/base/quantity.h"
#include "xylem/topology/cpu_set.h"
#include "xylem/topology/link.h"
#include "xylem/topology/pci.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace xylem::topology {

/// A processor in its socket.
struct Package {
  std::uint32_t os_index = 0;
  std::string cpu_model;               ///< Empty when the source does not say.
  std::optional<std::uint32_t> cores;  ///< Absent when the source lists none (trimmed files).
  CpuSet cpus;

  friend bool operator==(const Package&, const Package&) = default;
};

/// Memory and the CPUs near it. The operating system's numbers may have gaps (0 and 8 on POWER9).
struct NumaNode {
  std::uint32_t os_index = 0;
  bool implied = false;  ///< The source lists no node: the whole machine counts as node 0.
  std::optional<std::uint32_t> package;  ///< Index of its package.
  std::optional<std::uint32_t> cores;
  CpuSet cpus;  ///< Empty for memory without CPUs (a GPU's, or CXL).
  Bytes memory;

  friend bool operator==(const NumaNode&, const NumaNode&) = default;
};

/// Indices of the NUMA nodes that something may be near, ascending. One: its place is known.
/// Several: the source only says "one of these" (firmware without affinity, most virtual machines),
/// and we do not guess.
using Locality = std::vector<std::uint32_t>;

/// Where a PCIe tree leaves the package.
struct HostBridge {
  std::uint32_t domain = 0;
  std::uint8_t first_bus = 0;
  std::uint8_t last_bus = 0;
  Locality numa;
  /// The source does not tell host bridges apart: this one stands for all of its NUMA node.
  bool implied = false;

  friend bool operator==(const HostBridge&, const HostBridge&) = default;
};

/// What every PCI function has.
struct PciDevice {
  PciAddress address;
  PciId id;
  std::uint16_t pci_class = 0;    ///< Class and subclass, 0x0302.
  std::string vendor;             ///< Name from the PCI ID database; may be empty.
  std::string model;              ///< Likewise.
  std::optional<NodeRef> parent;  ///< A bridge or host bridge; absent where the tree is hidden.
  Locality numa;
  Rate uplink;  ///< Towards the parent. A bridge that faces down reports the link below it.

  friend bool operator==(const PciDevice&, const PciDevice&) = default;
};

/// A PCI-to-PCI bridge: a root port, or a port of a switch. A switch is its upstream bridge with
/// its downstream bridges below; a tree in which every path is shown needs no more.
struct Bridge {
  PciDevice pci;
  std::uint8_t first_bus = 0;  ///< The buses below it.
  std::uint8_t last_bus = 0;
  /// The source shows no ports: this one stands for a whole switch.
  bool is_switch = false;

  friend bool operator==(const Bridge&, const Bridge&) = default;
};

/// A slice of a GPU that programs see as a GPU (an MI300's partition). It shares its device's
/// place.
struct Partition {
  std::string name;
  std::string uuid;

  friend bool operator==(const Partition&, const Partition&) = default;
};

struct Gpu {
  PciDevice pci;
  std::string model;  ///< The driver's name for it, else that of the PCI ID database.
  std::string uuid;   ///< Empty when no driver told.
  /// What its code is compiled for: "sm_90", "gfx942". Empty when no driver told.
  std::string architecture;
  std::vector<std::string> os_names;  ///< "card1", "nvml0": for people; never used to match.
  std::vector<Partition> partitions;  ///< Empty for an undivided GPU, else two or more.

  friend bool operator==(const Gpu&, const Gpu&) = default;
};

/// State of a port, in the words of the InfiniBand specification.
enum class PortState : std::uint8_t { unknown, down, initializing, armed, active };
std::string_view name(PortState state) noexcept;

enum class LinkLayer : std::uint8_t { unknown, infiniband, ethernet };
std::string_view name(LinkLayer layer) noexcept;

/// By which protocol packets with a GID as source travel.
enum class GidType : std::uint8_t { unknown, infiniband, roce_v1, roce_v2 };
std::string_view name(GidType type) noexcept;

/// What kind of address a GID is; `ipv4` is mapped into IPv6's form.
enum class GidScope : std::uint8_t { ipv4, link_local, global };
std::string_view name(GidScope scope) noexcept;

/// An entry of a port's table of global identifiers. The identifier itself is not kept: addresses
/// are a job's, not a machine's.
struct Gid {
  std::uint32_t index = 0;  ///< What NCCL_IB_GID_INDEX and UCX_IB_GID_INDEX count.
  GidType type = GidType::unknown;
  GidScope scope = GidScope::global;

  friend bool operator==(const Gid&, const Gid&) = default;
};

/// One port of an RDMA device.
struct Port {
  std::string device;  ///< "mlx5_0".
  std::uint32_t number = 1;
  PortState state = PortState::unknown;
  LinkLayer link_layer = LinkLayer::unknown;
  std::optional<GBps> rate;
  /// The network interface that shares it, which its first GID names; empty if none or unknown.
  std::string interface = {};
  std::vector<Gid> gids = {};  ///< In the order of their indices.

  friend bool operator==(const Port&, const Port&) = default;
};

/// The GID that routes farthest: over Ethernet RoCE v2 over IPv4, else over global IPv6, else
/// link-local; RoCE v1, which switches do not route, last. Of InfiniBand the first. Null without a
/// GID.
const Gid* preferred_gid(const Port& port) noexcept;

/// A network controller: one PCI function. A card with two functions is two NICs.
struct Nic {
  PciDevice pci;
  std::string name;     ///< Its RDMA device, else its interface, else its address.
  bool fabric = false;  ///< Has verbs (InfiniBand, RoCE, EFA) or is a Cassini: can be a rail.
  /// No PCI function (a container's interface): of `pci` only the place counts, the address is 0.
  bool is_virtual = false;
  std::optional<PciAddress> physical_function;  ///< Set on a virtual function: whose slice it is.
  std::vector<Port> ports;

  friend bool operator==(const Nic&, const Nic&) = default;
};

/// A switch between GPUs (NVIDIA's, seen as a PCI device on the management bus).
struct NvSwitch {
  PciDevice pci;

  friend bool operator==(const NvSwitch&, const NvSwitch&) = default;
};

enum class InterfaceState : std::uint8_t { unknown, down, up };
std::string_view name(InterfaceState state) noexcept;

/// What an interface stands for. Only `physical` and `bond` can reach another host by themselves.
enum class InterfaceKind : std::uint8_t { physical, bond, bridge, loopback, other_virtual };
std::string_view name(InterfaceKind kind) noexcept;

/// A network interface of the operating system. Its addresses are not kept: they are a job's, not a
/// machine's.
struct NetInterface {
  std::string name;
  InterfaceKind kind = InterfaceKind::physical;
  InterfaceState state = InterfaceState::unknown;
  std::optional<GBps> rate;
  std::optional<std::uint32_t> mtu;
  std::string driver;                ///< Empty when unknown or virtual.
  std::optional<std::uint32_t> nic;  ///< Index of the NIC behind it.
  std::string bond = {};             ///< The bond that it is a member of; empty if none.

  friend bool operator==(const NetInterface&, const NetInterface&) = default;
};

}  // namespace xylem::topology
