// SPDX-License-Identifier: Apache-2.0
//
// What a status means for a send and for a receive. UCX says "cancelled" both of what was asked to
// end and of what ended with its endpoint.
#pragma once

#include "ucx/status.h"

namespace xylem::transport::ucx {

/// Nobody cancels a send: its endpoint was cut.
inline Code send_code(ucs_status_t status) noexcept {
  return status == UCS_ERR_CANCELED ? Code::peer_lost : code_of(status);
}

/// `asked`: by cancel().
inline Code receive_code(ucs_status_t status, bool asked) noexcept {
  return status == UCS_ERR_CANCELED && !asked ? Code::peer_lost : code_of(status);
}

}  // namespace xylem::transport::ucx
