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

Plans::Site site_of(const Context& context, const GroupSpec& spec) {
  std::vector<transport::Capabilities> wires;
  wires.reserve(spec.world_ranks.size());
  for (const std::uint32_t rank : spec.world_ranks) {
    wires.push_back(context.wires->capabilities(rank));
  }
  // If all members share memory, a slice must fit into a slot, so that the engine can fuse steps.
  const std::uint64_t wanted = context.config().slice.value;
  const std::uint64_t fits = context.wires->view_bytes(spec.world_ranks);
  return {.rank = spec.rank,
          .size = spec.size(),
          .slice_bytes = fits == 0 ? wanted : std::min(wanted, fits),
          .fits_slots = fits != 0,
          .device_slice_bytes = context.config().device_slice.value,
          .window = context.config().window,
          .algorithm = context.config().algorithm,
          .given = &context.given,
          .wires = std::move(wires),
          .devices = &context.devices,
          .tags = spec.tags(),
          .label = spec.label()};
}

}  // namespace xylem::runtime
