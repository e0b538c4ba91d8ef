// SPDX-License-Identifier: Apache-2.0
//
// The code that a UCX status means for a send and for a receive. UCX reports "cancelled" both for a
// request that was cancelled and for one whose endpoint ended.
#pragma once

#include "ucx/status.h"

namespace xylem::transport::ucx {

/// Sends are never cancelled, so UCS_ERR_CANCELED means that the endpoint was closed.
inline Code send_code(ucs_status_t status) noexcept {
  return status == UCS_ERR_CANCELED ? Code::peer_lost : code_of(status);
}

/// `asked`: cancel() was called for the receive.
inline Code receive_code(ucs_status_t status, bool asked) noexcept {
  return status == UCS_ERR_CANCELED && !asked ? Code::peer_lost : code_of(status);
}

}  // namespace xylem::transport::ucx
