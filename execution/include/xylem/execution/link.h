// SPDX-License-Identifier: Apache-2.0
//
// How the ranks of a communicator reach each other.
#pragma once

#include "xylem/execution/program.h"
#include "xylem/transport/transport.h"
#include "xylem/transport/views.h"

#include <cstdint>
#include <vector>

namespace xylem::execution {

/// How one peer is reached.
struct Link {
  transport::Transport* transport = nullptr;  ///< Null until the peer is first needed.
  transport::Views* views = nullptr;          ///< Transport::views(); null if there are none.
  transport::EndpointId endpoint = 0;
  std::uint64_t view_bytes = 0;    ///< Views::view_bytes(); 0 without views.
  std::uint64_t inline_bytes = 0;  ///< Capabilities::inline_bytes of the transport.
};

/// The link over an endpoint of a transport.
inline Link link_over(transport::Transport& transport, transport::EndpointId endpoint) noexcept {
  transport::Views* const views = transport.views();
  const std::uint64_t view_bytes = views == nullptr ? 0 : views->view_bytes();
  return {&transport, views, endpoint, view_bytes, transport.capabilities().inline_bytes};
}

/// The members of a communicator, and how one of them reaches the others.
struct Peers {
  std::uint32_t rank = 0;  ///< The rank of this member.
  /// groups[r] is the group_tag() of collectives in messages to rank r.
  std::vector<transport::Tag> groups;
  std::vector<Link> links;  ///< links[r] is the link to rank r.

  /// The link that the messages of a lane use.
  const Link& link(const Lane& lane) const noexcept { return links[lane.peer]; }
};

}  // namespace xylem::execution
