// SPDX-License-Identifier: Apache-2.0
//
// Phrases that the writers use in output for people: NIC numbers, rates, path classes.
#pragma once

#include "xylem/topology/path.h"
#include "xylem/topology/rings.h"

#include <optional>
#include <string>
#include <vector>

namespace xylem::topology {

/// For each NIC, the number that follows "NIC" in its name: its position among the fabric NICs, as
/// in nvidia-smi's matrix. Other NICs have no number.
std::vector<std::optional<std::uint32_t>> nic_numbers(const Topology& topology);

/// The cell of a path in the matrix: "PIX", "NV4", "NV" (unknown number of NVLinks), "XGMI" or "?".
std::string cell_of(const Path& path);

/// The rate of a network, such as "200 Gb/s". It is in bits, as is usual for networks.
std::string in_gigabits(GBps rate);

/// The GID to use for an Ethernet port, such as "RoCE v2 GID 3 (IPv4)"; empty if preferred_gid()
/// returns none, or one of InfiniBand.
std::string gid_text(const Port& port);

/// A PCIe link, such as "PCIe gen 4 x16, 31.51 GB/s", or the known parts of it; empty if nothing is
/// known.
std::string pcie_text(const Rate& rate);

/// "64.0 GiB"; empty if the size is unknown.
std::string memory_text(const NumaNode& node);

/// "memory 80.0 GiB at 3352 GB/s", or the known part of it, as the driver reports it.
std::string memory_text(const Gpu& gpu);

/// "possible", "not possible (the chipset does not support it)".
std::string_view peer_access_text(PeerAccess access);

/// What connects the GPUs: "NVSwitches", "PCIe"; "nothing" if nothing was found.
std::string_view fabric_text(const Topology& topology, GpuFabric fabric);

/// "6 GPU rings over NVLink, 150 GB/s together; no schedule exceeds 150 GB/s".
std::string ring_text(const Topology& topology,
                      const RingPlan& plan,
                      const BandwidthBounds& bounds);

}  // namespace xylem::topology
