// SPDX-License-Identifier: Apache-2.0
//
// Rails: the networks between the hosts of a job that carry payload over TCP. If the hosts have
// several network cards, or XYLEM_INTERFACES names several interfaces, the ranks of a host use them
// in turn: with k networks, the rank with place p on its host uses network p mod k. So if a host
// has k ranks, a hierarchical schedule (docs/algorithms.md) has one ring or tree on each network.
// Messages between ranks with different networks go over that of the rank that requests the
// connection.
//
// The control plane uses one interface of each host. Another network is a rail only if every rank
// may use an interface with an address in it (InterfaceChoice::others), and if each host can
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
/// listens for payload at this rank's port. Collective; blocks for some seconds if a host does not
/// answer over one of the networks. Does nothing on one host, if no host has several ranks, and if
/// a rank uses RDMA: then the few ranks that cannot use it do not need several networks.
Status choose_rails(ControlPlane& control, Hosts& hosts, const Logger& logger, Deadline deadline);

}  // namespace xylem::runtime
