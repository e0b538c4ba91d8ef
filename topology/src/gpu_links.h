// SPDX-License-Identifier: Apache-2.0
//
// Builds links between GPUs from their ends. Drivers and NCCL report the ends of links for each
// GPU.
#pragma once

#include "xylem/topology/topology.h"

#include <cstdint>
#include <span>
#include <string_view>

namespace xylem::topology {

/// Prefixes of Gpu::architecture. "sm_" is followed by the compute capability times 10 (NVIDIA),
/// and "gfx" by the GCN number (AMD).
inline constexpr std::string_view kCudaPrefix = "sm_";
inline constexpr std::string_view kGcnPrefix = "gfx";
/// The address that the driver reports for an NVSwitch hidden by a virtual machine or container:
/// "fffffff:ff:ff.0".
inline constexpr PciAddress kHiddenSwitch{0xfffffff, 0xff, 31, 7};
inline constexpr std::uint32_t kNvSwitchClass = 0x068000;

/// All parallel links from one GPU to one target.
struct LinkEnd {
  std::uint32_t gpu = 0;
  LinkKind kind = LinkKind::nvlink;
  PciAddress target;
  bool is_switch = false;
  std::uint32_t count = 0;
};

/// Adds the links, with rates that follow from the architectures of their GPUs, and any missing
/// NVSwitches at their ends. If the two ends of a link report different counts, the larger count is
/// used. Links to GPUs that do not exist, and from a GPU to itself, are ignored. GPUs and
/// NVSwitches must be sorted by address, and the machine must not have links of these kinds yet.
void add_links(Machine& machine, std::span<const LinkEnd> ends);

}  // namespace xylem::topology
