// SPDX-License-Identifier: Apache-2.0
//
// One switch over all statuses of UCX, without a default, so that the compiler warns of new ones.
#include "ucx/status.h"

#include "ucx/api.h"

#include <fmt/format.h>

namespace xylem::transport::ucx {

Code code_of(ucs_status_t status) noexcept {
  switch (status) {
    case UCS_OK: return Code::ok;
    case UCS_INPROGRESS:
    case UCS_ERR_BUSY: return Code::busy;
    case UCS_ERR_CANCELED: return Code::cancelled;
    case UCS_ERR_MESSAGE_TRUNCATED: return Code::mismatch;
    case UCS_ERR_TIMED_OUT: return Code::timed_out;
    case UCS_ERR_INVALID_ADDR: return Code::invalid_argument;
    // The peer has ended, or never answered.
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_REJECTED:
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_FIRST_ENDPOINT_FAILURE:
    case UCS_ERR_LAST_ENDPOINT_FAILURE: return Code::peer_lost;
    // The connection to the peer failed.
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_IO_ERROR:
    case UCS_ERR_SOME_CONNECTS_FAILED:
    case UCS_ERR_FIRST_LINK_FAILURE:
    case UCS_ERR_LAST_LINK_FAILURE: return Code::link_lost;
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_NO_RESOURCE:
    case UCS_ERR_SHMEM_SEGMENT:
    case UCS_ERR_EXCEEDS_LIMIT: return Code::exhausted;
    case UCS_ERR_NO_DEVICE:
    case UCS_ERR_NOT_IMPLEMENTED:
    case UCS_ERR_UNSUPPORTED: return Code::unsupported;
    case UCS_ERR_NO_MESSAGE:
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_NO_PROGRESS:
    case UCS_ERR_BUFFER_TOO_SMALL:
    case UCS_ERR_NO_ELEM:
    case UCS_ERR_ALREADY_EXISTS:
    case UCS_ERR_OUT_OF_RANGE:
    case UCS_ERR_LAST: return Code::internal;
  }
  // Numbers in UCX's ranges of endpoint and link errors that have no enumerator.
  if (UCS_IS_ENDPOINT_ERROR(status)) return Code::peer_lost;
  if (UCS_IS_LINK_ERROR(status)) return Code::link_lost;
  return Code::internal;
}

Status refusal(ucs_status_t status, std::string_view what, std::string_view remedy) {
  return failure(code_of(status),
                 fmt::format("UCX could not {}: {}{}{}", what, api().ucs_status_string(status),
                             remedy.empty() ? "" : ": ", remedy));
}

}  // namespace xylem::transport::ucx
