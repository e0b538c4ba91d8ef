// SPDX-License-Identifier: Apache-2.0
//
// Joining, from the interface to the connections.
#include "bootstrap/control_plane.h"

#include "bootstrap/control_join.h"
#include "bootstrap/interface.h"

#include <fmt/format.h>

namespace xylem::runtime {

Result<std::unique_ptr<ControlPlane>> ControlPlane::join(const Placement& placement,
                                                         Store& store,
                                                         const Config& config,
                                                         const Logger& logger,
                                                         Deadline deadline) {
  XYLEM_TRY(const auto interfaces, list_interfaces());
  // Who is alone meets nobody.
  const std::string host = placement.size == 1 ? "" : placement.meeting_host;
  XYLEM_TRY(const MeetingPoint meeting, find_meeting_point(host, deadline));
  XYLEM_TRY(const InterfaceChoice choice, choose_interface(interfaces, config.interfaces, meeting));
  logger.debug(fmt::format("start: interface {} ({}): {}", choice.chosen.name,
                           choice.chosen.address.host(), choice.reason));
  return ControlJoin(placement, store, logger, deadline).run(choice);
}

}  // namespace xylem::runtime
