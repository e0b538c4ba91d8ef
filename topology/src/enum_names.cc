// SPDX-License-Identifier: Apache-2.0
#include "enum_names.h"

namespace xylem::topology {

std::string_view name(Origin origin) noexcept { return name_of(origin); }
std::string_view name(NodeKind kind) noexcept { return name_of(kind); }
std::string_view name(LinkKind kind) noexcept { return name_of(kind); }
std::string_view name(PortState state) noexcept { return name_of(state); }
std::string_view name(InterfaceState state) noexcept { return name_of(state); }
std::string_view name(InterfaceKind kind) noexcept { return name_of(kind); }
std::string_view name(PathClass path_class) noexcept { return name_of(path_class); }

}  // namespace xylem::topology
