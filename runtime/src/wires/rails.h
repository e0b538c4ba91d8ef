// SPDX-License-Identifier: Apache-2.0
//
// Rails: the networks between the hosts of a job that carry payload over TCP. If the hosts have
// several network interfaces, the ranks of a host use them in turn: the ranks with the same place
// on their hosts are on one rail. So a hierarchical schedule (docs/algorithms.md) has one ring or
// tree on each rail.
//
// The control plane uses one interface of each host. Another network is a rail only if every host
// has an interface like that (InterfaceChoice::others) with an address in it, and if each host can
// connect to the next one over it: a network that every host has may still not lead from one to the
// other (VLANs, firewalls).
#pragma once

#include "bootstrap/control_plane.h"
#include "wires/hosts.h"
#include "xylem/base/clock.h"
#include "xylem/base/log.h"
#include "xylem/base/status.h"

namespace xylem::runtime {

/// Finds the rails and sets them in `hosts`, equally on all ranks. From now on the control plane
/// listens for payload at this rank's port. Collective; blocks for up to a second for each network
/// over which a host does not answer. Does nothing on one host, or if no host has several ranks.
Status choose_rails(ControlPlane& control, Hosts& hosts, const Logger& logger, Deadline deadline);

}  // namespace xylem::runtime
