// SPDX-License-Identifier: Apache-2.0
//
// The parts of a host: packages and NUMA nodes, the PCIe tree with GPUs, NICs and NVSwitches as its
// leaves, and the network interfaces of the operating system. These are plain values; a Topology
// holds and checks them.
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
  std::string cpu_model;               ///< Empty if unknown.
  std::optional<std::uint32_t> cores;  ///< Absent if unknown, as in files without cores.
  CpuSet cpus;

  friend bool operator==(const Package&, const Package&) = default;
};

/// Memory and the CPUs near it. The numbers `os_index` may have gaps (0 and 8 on POWER9).
struct NumaNode {
  std::uint32_t os_index = 0;
  /// True if this node represents the whole machine, because the source lists no NUMA nodes.
  bool implied = false;
  std::optional<std::uint32_t> package;  ///< Index of the package of the node.
  std::optional<std::uint32_t> cores;
  CpuSet cpus;  ///< Empty for memory without CPUs (a GPU's, or CXL).
  Bytes memory;

  friend bool operator==(const NumaNode&, const NumaNode&) = default;
};

/// Indices of the NUMA nodes to which a device may be near, ascending. One index means that the
/// place of the device is known. Several indices mean that the source states only that the device
/// is near one of these nodes (firmware without affinity, most virtual machines); Xylem does not
/// guess the node.
using Locality = std::vector<std::uint32_t>;

/// The point where a PCIe tree is attached to the package.
struct HostBridge {
  std::uint32_t domain = 0;
  std::uint8_t first_bus = 0;
  std::uint8_t last_bus = 0;
  Locality numa;
  /// True if this HostBridge represents all host bridges of its NUMA node, because the source does
  /// not distinguish them.
  bool implied = false;

  friend bool operator==(const HostBridge&, const HostBridge&) = default;
};

/// Facts about any PCI function.
struct PciDevice {
  PciAddress address;
  PciId id;
  std::uint16_t pci_class = 0;    ///< Class and subclass, such as 0x0302.
  std::string vendor;             ///< Name of the vendor in the PCI ID database; may be empty.
  std::string model;              ///< Name of the model in the PCI ID database; may be empty.
  std::optional<NodeRef> parent;  ///< A bridge or host bridge; absent if the tree is hidden.
  Locality numa;
  Rate uplink;  ///< The link towards the parent. For a downstream port, the link below it.

  friend bool operator==(const PciDevice&, const PciDevice&) = default;
};

/// A PCI-to-PCI bridge: a root port, or a port of a switch. A switch is represented by its upstream
/// bridge with its downstream bridges below.
struct Bridge {
  PciDevice pci;
  std::uint8_t first_bus = 0;  ///< The buses below the bridge.
  std::uint8_t last_bus = 0;
  /// True if this Bridge represents a whole switch, because the source does not show the ports.
  bool is_switch = false;

  friend bool operator==(const Bridge&, const Bridge&) = default;
};

/// A part of a GPU that applications see as a GPU of its own (such as a partition of an MI300). A
/// partition has the same place as its GPU.
struct Partition {
  std::string name;
  std::string uuid;

  friend bool operator==(const Partition&, const Partition&) = default;
};

struct Gpu {
  PciDevice pci;
  std::string model;  ///< Name by the driver, otherwise by the PCI ID database.
  std::string uuid;   ///< Empty if no driver reports it.
  /// The architecture for which code for this GPU is compiled: "sm_90", "gfx942". Empty if no
  /// driver reports it.
  std::string architecture;
  std::vector<std::string> os_names;  ///< "card1", "nvml0": for output only, never used to match.
  std::vector<Partition> partitions;  ///< Empty for an undivided GPU, otherwise two or more.
  // The facts below are reported by a driver, and are otherwise unknown:
  Bytes memory;      ///< The size of the GPU's memory; 0: unknown.
  Rate memory_rate;  ///< The bandwidth of the GPU's memory, which reads and writes share.
  /// The number of NVLinks of the GPU that are not up.
  std::optional<std::uint32_t> nvlinks_down;
  /// The number of PCIe lanes that the GPU and its slot support; `uplink` may have fewer.
  std::optional<std::uint32_t> pcie_lanes;
  /// Whether processes can open each other's allocations on this GPU (CUDA IPC).
  std::optional<bool> ipc;
  /// Whether the GPU allows NICs to read and write its memory (GPUDirect RDMA). The NIC must
  /// support this, too.
  std::optional<bool> rdma;

  friend bool operator==(const Gpu&, const Gpu&) = default;
};

/// Whether two GPUs can read and write each other's memory (peer access), and otherwise why not.
enum class PeerAccess : std::uint8_t {
  unknown,
  yes,
  no,              ///< Not possible; the driver reports no reason.
  no_by_chipset,   ///< The chipset does not support it.
  no_by_gpu,       ///< A GPU does not support it.
  no_by_topology,  ///< The paths of the machine do not support it.
  disabled,        ///< Disabled by a setting of the driver.
};

/// What a driver reports about two GPUs. Pairs about which the driver reports nothing have no
/// entry.
struct GpuPair {
  std::uint32_t a = 0;  ///< Indices of the GPUs, a < b.
  std::uint32_t b = 0;
  PeerAccess access = PeerAccess::unknown;

  friend bool operator==(const GpuPair&, const GpuPair&) = default;
};

/// NVIDIA's driver on a machine with GPUs of NVIDIA; all texts are empty on other machines.
struct NvidiaDriver {
  std::string version;       ///< "580.65.06"; empty if NVML does not report it.
  std::string cuda_version;  ///< The newest CUDA that the driver supports: "13.0".
  /// Why libraries of the driver could not be queried; empty if all could be queried.
  std::string trouble;

  friend bool operator==(const NvidiaDriver&, const NvidiaDriver&) = default;
};

/// State of a port, named as in the InfiniBand specification.
enum class PortState : std::uint8_t { unknown, down, initializing, armed, active };
std::string_view name(PortState state) noexcept;

enum class LinkLayer : std::uint8_t { unknown, infiniband, ethernet };

/// The protocol of packets that have the GID as their source.
enum class GidType : std::uint8_t { unknown, infiniband, roce_v1, roce_v2 };

/// The kind of address that a GID is; `ipv4` is an IPv4 address mapped into IPv6 form.
enum class GidScope : std::uint8_t { ipv4, link_local, global };

/// An entry of a port's table of global identifiers. The identifier itself is not stored, since
/// addresses are not properties of the hardware.
struct Gid {
  std::uint32_t index = 0;  ///< The number for NCCL_IB_GID_INDEX and UCX_IB_GID_INDEX.
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
  /// The network interface of the first GID that names one; empty if none does.
  std::string interface = {};
  std::vector<Gid> gids = {};  ///< In the order of their indices.

  friend bool operator==(const Port&, const Port&) = default;
};

/// The GID that can be routed farthest. On Ethernet: RoCE v2 with IPv4, then with global IPv6, then
/// link-local, and last RoCE v1, which cannot be routed. On InfiniBand: the first GID. Null if the
/// port has no GID of a known type.
const Gid* preferred_gid(const Port& port) noexcept;

/// A network controller: one PCI function. A card with two functions counts as two NICs.
struct Nic {
  PciDevice pci;
  /// The name of the NIC's RDMA device, otherwise of its interface, otherwise its PCI address.
  std::string name;
  /// True if the NIC has verbs (InfiniBand, RoCE, EFA) or is a Cassini, so that it can be part of a
  /// rail.
  bool fabric = false;
  /// True if the NIC has no PCI function (a container's interface). Then only `numa` is valid in
  /// `pci`, and the address is 0.
  bool is_virtual = false;
  /// For a virtual function: the physical function to which it belongs.
  std::optional<PciAddress> physical_function;
  std::vector<Port> ports;

  friend bool operator==(const Nic&, const Nic&) = default;
};

/// NVIDIA's switch between GPUs, visible as a PCI device on the management bus.
struct NvSwitch {
  PciDevice pci;

  friend bool operator==(const NvSwitch&, const NvSwitch&) = default;
};

enum class InterfaceState : std::uint8_t { unknown, down, up };
std::string_view name(InterfaceState state) noexcept;

/// The kind of an interface. Only `physical` and `bond` can reach other hosts by themselves.
enum class InterfaceKind : std::uint8_t { physical, bond, bridge, loopback, other_virtual };
std::string_view name(InterfaceKind kind) noexcept;

/// A network interface of the operating system. Its addresses are not stored, since they are not
/// properties of the hardware.
struct NetInterface {
  std::string name;
  InterfaceKind kind = InterfaceKind::physical;
  InterfaceState state = InterfaceState::unknown;
  std::optional<GBps> rate;
  std::optional<std::uint32_t> mtu;
  std::string driver;                ///< Empty if unknown or virtual.
  std::optional<std::uint32_t> nic;  ///< Index of the NIC of the interface.
  std::string bond = {};             ///< The bond that contains the interface; or empty.

  friend bool operator==(const NetInterface&, const NetInterface&) = default;
};

}  // namespace xylem::topology
