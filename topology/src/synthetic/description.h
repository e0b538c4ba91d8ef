// SPDX-License-Identifier: Apache-2.0
//
// The contents of a one-line description, before they are turned into a machine.
//
//   2 packages, 4 switches, 2 gpus/switch, 1 nic/gpu 400 Gb/s, nvswitch, pcie gen5 x16
#pragma once

#include "xylem/base/status.h"
#include "xylem/topology/link.h"

#include <cstdint>
#include <string_view>

namespace xylem::topology::synthetic {

/// What a number is counted for: "2 gpus/switch" means two GPUs for each switch.
enum class Per : std::uint8_t { host, package, numa, pcie_switch, gpu };

struct Count {
  std::uint32_t each = 0;
  Per per = Per::host;
};

/// How GPUs are connected in addition to PCIe.
enum class Fabric : std::uint8_t {
  none,
  nvswitch,
  mesh,   ///< Every pair of GPUs is connected.
  ring,   ///< Each GPU is connected with the next one, and the last GPU with the first.
  pairs,  ///< GPU 0 is connected with 1, 2 with 3, and so on.
  cube,   ///< The hybrid cube mesh of eight V100.
};

struct Description {
  std::uint32_t packages = 1;
  Count numa{1, Per::package};
  Count cores{8, Per::package};
  Count switches, gpus, nics;
  double pcie_speed = 32;  ///< The speed of one lane, in GT/s.
  std::uint32_t pcie_width = 16;
  GBps nic_rate{50};
  Fabric fabric = Fabric::none;
  LinkKind link_kind = LinkKind::nvlink;
  /// Number of links of one pair or, with NVSwitches, of one GPU.
  std::uint32_t links = 0;
};

/// Reads `text`. Errors name `source`, the clause and the rule.
Result<Description> parse(std::string_view text, std::string_view source);

}  // namespace xylem::topology::synthetic
