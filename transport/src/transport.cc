// SPDX-License-Identifier: Apache-2.0
#include "xylem/transport/transport.h"

#include "xylem/base/check.h"

namespace xylem::transport {

// Default implementations for transports without views. Calls that such a transport never allows
// abort.

bool Transport::send_inline(EndpointId /*to*/,
                            Tag /*tag*/,
                            const void* /*data*/,
                            std::uint64_t /*bytes*/) noexcept {
  return false;
}

Posted Transport::recv_view(Tag /*tag*/, Region /*target*/, Operation& /*operation*/) noexcept {
  XYLEM_CHECK(false, name());
  return Posted::done;
}

bool Transport::take_view(EndpointId /*from*/,
                          Tag /*tag*/,
                          std::uint64_t /*bytes*/,
                          View& /*view*/) noexcept {
  return false;
}

bool Transport::release(const View& /*view*/) noexcept {
  XYLEM_CHECK(false, name());
  return true;
}

bool Transport::is_readable(const ConstRegion& /*source*/) noexcept { return false; }

void Transport::pull_from(std::uint64_t /*bytes*/) noexcept {}

Room Transport::reserve(std::span<const EndpointId> /*to*/,
                        std::uint64_t /*bytes*/,
                        Reservation& /*reservation*/) noexcept {
  return Room::never;
}

void Transport::fill(const void* /*data*/, CopyTarget /*also*/) noexcept {
  XYLEM_CHECK(false, name());
}

void Transport::commit(EndpointId /*to*/, Tag /*tag*/) noexcept { XYLEM_CHECK(false, name()); }

void Transport::abandon() noexcept { XYLEM_CHECK(false, name()); }

std::uint32_t Transport::unread(EndpointId /*to*/) noexcept { return 0; }

}  // namespace xylem::transport
