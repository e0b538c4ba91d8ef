// SPDX-License-Identifier: Apache-2.0
//
// The JSON fields of each part of a machine. An archive either writes or reads a field, so one list
// serves both directions and they cannot differ.
#pragma once

#include "xylem/topology/topology.h"

namespace xylem::topology {

template <typename Archive>
void fields(Archive& archive, Rate& rate) {
  archive("bandwidth_GBps", rate.bandwidth);
  archive("origin", rate.origin);
  archive("width", rate.width);
  archive("speed_GTps", rate.speed);
}

template <typename Archive>
void fields(Archive& archive, Package& package) {
  archive("os_index", package.os_index);
  archive("cpu_model", package.cpu_model);
  archive("cores", package.cores);
  archive("cpus", package.cpus);
}

template <typename Archive>
void fields(Archive& archive, NumaNode& node) {
  archive("os_index", node.os_index);
  archive("implied", node.implied);
  archive("package", node.package);
  archive("cores", node.cores);
  archive("cpus", node.cpus);
  archive("memory_bytes", node.memory);
}

template <typename Archive>
void fields(Archive& archive, HostBridge& bridge) {
  archive("domain", bridge.domain);
  archive("first_bus", bridge.first_bus);
  archive("last_bus", bridge.last_bus);
  archive("numa", bridge.numa);
  archive("implied", bridge.implied);
}

template <typename Archive>
void fields(Archive& archive, PciId& id) {
  archive("vendor", id.vendor);
  archive("device", id.device);
  archive("subsystem_vendor", id.subsystem_vendor);
  archive("subsystem_device", id.subsystem_device);
}

template <typename Archive>
void fields(Archive& archive, PciDevice& pci) {
  archive("bus_id", pci.address);
  archive("id", pci.id);
  archive("class", pci.pci_class);
  archive("vendor_name", pci.vendor);
  archive("device_name", pci.model);
  archive("parent", pci.parent);
  archive("numa", pci.numa);
  archive("uplink", pci.uplink);
}

template <typename Archive>
void fields(Archive& archive, Bridge& bridge) {
  archive("pci", bridge.pci);
  archive("first_bus", bridge.first_bus);
  archive("last_bus", bridge.last_bus);
  archive("switch", bridge.is_switch);
}

template <typename Archive>
void fields(Archive& archive, Partition& partition) {
  archive("name", partition.name);
  archive("uuid", partition.uuid);
}

template <typename Archive>
void fields(Archive& archive, Gpu& gpu) {
  archive("model", gpu.model);
  archive("uuid", gpu.uuid);
  archive("architecture", gpu.architecture);
  archive("os_names", gpu.os_names);
  archive("partitions", gpu.partitions);
  archive("memory_bytes", gpu.memory);
  archive("memory_rate", gpu.memory_rate);
  archive("nvlinks_down", gpu.nvlinks_down);
  archive("pcie_lanes", gpu.pcie_lanes);
  archive("ipc", gpu.ipc);
  archive("rdma", gpu.rdma);
  archive("pci", gpu.pci);
}

template <typename Archive>
void fields(Archive& archive, Gid& gid) {
  archive("index", gid.index);
  archive("type", gid.type);
  archive("scope", gid.scope);
}

template <typename Archive>
void fields(Archive& archive, Port& port) {
  archive("device", port.device);
  archive("number", port.number);
  archive("state", port.state);
  archive("link_layer", port.link_layer);
  archive("rate_GBps", port.rate);
  archive("interface", port.interface);
  archive("gids", port.gids);
}

template <typename Archive>
void fields(Archive& archive, Nic& nic) {
  archive("name", nic.name);
  archive("fabric", nic.fabric);
  archive("virtual", nic.is_virtual);
  archive("physical_function", nic.physical_function);
  archive("ports", nic.ports);
  archive("pci", nic.pci);
}

template <typename Archive>
void fields(Archive& archive, NvSwitch& nvswitch) {
  archive("pci", nvswitch.pci);
}

template <typename Archive>
void fields(Archive& archive, NetInterface& interface) {
  archive("name", interface.name);
  archive("kind", interface.kind);
  archive("state", interface.state);
  archive("rate_GBps", interface.rate);
  archive("mtu", interface.mtu);
  archive("driver", interface.driver);
  archive("nic", interface.nic);
  archive("bond", interface.bond);
}

template <typename Archive>
void fields(Archive& archive, Link& link) {
  archive("a", link.a);
  archive("b", link.b);
  archive("kind", link.kind);
  archive("rate", link.rate);
}

template <typename Archive>
void fields(Archive& archive, GpuPair& pair) {
  archive("a", pair.a);
  archive("b", pair.b);
  archive("access", pair.access);
}

template <typename Archive>
void fields(Archive& archive, NvidiaDriver& driver) {
  archive("version", driver.version);
  archive("cuda_version", driver.cuda_version);
  archive("trouble", driver.trouble);
}

template <typename Archive>
void fields(Archive& archive, Machine& machine) {
  archive("host", machine.host);
  archive("product", machine.product);
  archive("architecture", machine.architecture);
  archive("packages", machine.packages);
  archive("numa_nodes", machine.numa_nodes);
  archive("host_bridges", machine.host_bridges);
  archive("bridges", machine.bridges);
  archive("gpus", machine.gpus);
  archive("nics", machine.nics);
  archive("nvswitches", machine.nvswitches);
  archive("interfaces", machine.interfaces);
  archive("links", machine.links);
  archive("gpu_pairs", machine.gpu_pairs);
  archive("nvidia_driver", machine.nvidia);
}

}  // namespace xylem::topology
