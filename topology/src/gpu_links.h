// SPDX-License-Identifier: Apache-2.0
//
// Links between GPUs out of what each GPU tells of its own, as drivers and NCCL do.
#pragma once

#include "xylem/topology/topology.h"

#include <cstdint>
#include <span>
#include <string_view>

namespace xylem::topology {

/// Of Gpu::architecture: NVIDIA's compute capability times 10, and AMD's GCN number.
inline constexpr std::string_view kCudaPrefix = "sm_";
inline constexpr std::string_view kGcnPrefix = "gfx";
/// What the driver says of an NVSwitch that a virtual machine or container hides:
/// "fffffff:ff:ff.0".
inline constexpr PciAddress kHiddenSwitch{0xfffffff, 0xff, 31, 7};
inline constexpr std::uint32_t kNvSwitchClass = 0x068000;

/// Parallel links of a GPU to one other end.
struct LinkEnd {
  std::uint32_t gpu = 0;
  LinkKind kind = LinkKind::nvlink;
  PciAddress target;
  bool is_switch = false;
  std::uint32_t count = 0;
};

/// Adds the links, as fast as the architectures of their GPUs make known, and the NVSwitches that
/// they lead to and the machine does not have. Of the two ends of a link that tell different counts
/// the greater holds; links to GPUs that are not there, and of a GPU to itself, are none. GPUs and
/// NVSwitches are listed by address, and no links of these kinds are there yet.
void add_links(Machine& machine, std::span<const LinkEnd> ends);

}  // namespace xylem::topology
