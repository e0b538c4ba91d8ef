// SPDX-License-Identifier: Apache-2.0
#include "calls/plan_site.h"

#include "context.h"
#include "groups/group_spec.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace xylem::runtime {
namespace {

/// The slice size of a group. If all members share memory, a slice must fit into a shared-memory
/// slot, so that the engine can fuse steps.
std::uint64_t slice_for(const Context& context, std::span<const std::uint32_t> world_ranks) {
  const std::uint64_t wanted = context.config().slice.value;
  const std::uint64_t fits = context.wires->view_bytes(world_ranks);
  return fits == 0 ? wanted : std::min(wanted, fits);
}

}  // namespace

Plans::Site site_of(const Context& context, const GroupSpec& spec) {
  std::vector<transport::Capabilities> wires;
  wires.reserve(spec.world_ranks.size());
  for (const std::uint32_t rank : spec.world_ranks) {
    wires.push_back(context.wires->capabilities(rank));
  }
  return {.rank = spec.rank,
          .size = spec.size(),
          .slice_bytes = slice_for(context, spec.world_ranks),
          .window = context.config().window,
          .algorithm = context.config().algorithm,
          .given = &context.given,
          .wires = std::move(wires),
          .devices = &context.devices,
          .tags = spec.tags(),
          .label = spec.label()};
}

}  // namespace xylem::runtime
