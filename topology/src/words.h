// SPDX-License-Identifier: Apache-2.0
//
// How the writers for people put things: NIC numbers, rates, path classes.
#pragma once

#include "xylem/topology/path.h"
#include "xylem/topology/rings.h"

#include <optional>
#include <string>
#include <vector>

namespace xylem::topology {

/// The number after "NIC" by index of the NIC: its place among the fabric NICs, as in nvidia-smi's
/// matrix. NICs that are no fabric NICs have none.
std::vector<std::optional<std::uint32_t>> nic_numbers(const Topology& topology);

/// A path in the matrix: "PIX", "NV4", "NV" (NVLinks, nobody knows how many), "XGMI", "?".
std::string cell_of(const Path& path);

/// A network's rate, "200 Gb/s": bits, as its users count.
std::string in_gigabits(GBps rate);

/// Which GID of an Ethernet port to use, "RoCE v2 GID 3 (IPv4)"; empty where there is no choice to
/// tell.
std::string gid_text(const Port& port);

/// A PCIe link: "PCIe gen 4 x16, 31.51 GB/s", or as much of it as is known; empty if nothing is.
std::string pcie_text(const Rate& rate);

/// "64.0 GiB"; empty if nobody tells.
std::string memory_text(const NumaNode& node);

/// What joins GPUs: "NVSwitches", "PCIe"; "nothing" where nothing was found.
std::string_view fabric_text(const Topology& topology, GpuFabric fabric);

/// "6 GPU rings over NVLink, 150 GB/s together; no schedule exceeds 150 GB/s".
std::string ring_text(const Topology& topology,
                      const RingPlan& plan,
                      const BandwidthBounds& bounds);

}  // namespace xylem::topology
