// SPDX-License-Identifier: Apache-2.0
#include "xylem/transport/transport.h"

namespace xylem::transport {

bool Transport::send_inline(EndpointId /*to*/,
                            Tag /*tag*/,
                            const void* /*data*/,
                            std::uint64_t /*bytes*/) noexcept {
  return false;
}

}  // namespace xylem::transport
