// SPDX-License-Identifier: Apache-2.0
//
// Words for the states and kinds of devices.
#include "xylem/topology/device.h"

#include "enum_names.h"

namespace xylem::topology {

std::string_view name(PortState state) noexcept { return name_of(state); }
std::string_view name(LinkLayer layer) noexcept { return name_of(layer); }
std::string_view name(InterfaceState state) noexcept { return name_of(state); }
std::string_view name(InterfaceKind kind) noexcept { return name_of(kind); }

}  // namespace xylem::topology
