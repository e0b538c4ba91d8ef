// SPDX-License-Identifier: Apache-2.0
#include "enum_names.h"

namespace xylem::topology {

std::string_view name(Origin origin) noexcept { return name_of(origin); }
std::string_view name(NodeKind kind) noexcept { return name_of(kind); }
std::string_view name(LinkKind kind) noexcept { return name_of(kind); }
std::string_view name(PeerAccess access) noexcept { return name_of(access); }
std::string_view name(PortState state) noexcept { return name_of(state); }
std::string_view name(LinkLayer layer) noexcept { return name_of(layer); }
std::string_view name(GidType type) noexcept { return name_of(type); }
std::string_view name(GidScope scope) noexcept { return name_of(scope); }
std::string_view name(InterfaceState state) noexcept { return name_of(state); }
std::string_view name(InterfaceKind kind) noexcept { return name_of(kind); }
std::string_view name(PathClass path_class) noexcept { return name_of(path_class); }
std::string_view name(GpuFabric fabric) noexcept { return name_of(fabric); }

}  // namespace xylem::topology
