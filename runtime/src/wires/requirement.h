// SPDX-License-Identifier: Apache-2.0
//
// XYLEM_REQUIRE: which transport a pair of ranks must use, and the error if it uses another one.
// The results are the same on all ranks.
#pragma once

#include "config.h"
#include "wires/hosts.h"
#include "wires/wire.h"
#include "xylem/base/status.h"

#include <cstdint>
#include <memory>
#include <span>

namespace xylem::runtime {

/// Whether ranks a and b may use the wire `used`, which is null if none joins them. The values tcp
/// and rdma allow any wire within a host.
bool satisfies(
    Requirement required, const Hosts& hosts, std::uint32_t a, std::uint32_t b, const Wire* used);

/// The error for a pair that satisfies() refuses: the pair, its transport, the reason if it is
/// known, and the remedy. `wires` are in order of preference.
Status unsatisfied(Requirement required,
                   const Hosts& hosts,
                   std::span<const std::unique_ptr<Wire>> wires,
                   std::uint32_t a,
                   std::uint32_t b,
                   const Wire* used);

}  // namespace xylem::runtime
