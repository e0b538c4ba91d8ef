// SPDX-License-Identifier: Apache-2.0
//
// Translates ucs_status_t into Xylem's codes. No other folder of Xylem uses ucs_status_t.
#pragma once

#include "xylem/base/status.h"

#include <ucs/type/status.h>

#include <string_view>

namespace xylem::transport::ucx {

/// The code for a UCX status. A status that no correct call produces becomes `internal`.
Code code_of(ucs_status_t status) noexcept;

// UCX reports UCS_ERR_CANCELED both for a request that was cancelled and for a request whose
// endpoint ended.

/// The code for a send. This transport never cancels sends, so UCS_ERR_CANCELED means that the
/// endpoint ended.
inline Code send_code(ucs_status_t status) noexcept {
  return status == UCS_ERR_CANCELED ? Code::peer_lost : code_of(status);
}

/// The code for a receive. `asked` states whether cancel() was called for the receive.
inline Code receive_code(ucs_status_t status, bool asked) noexcept {
  return status == UCS_ERR_CANCELED && !asked ? Code::peer_lost : code_of(status);
}

/// The error "UCX could not <what>: <UCX's text for `status`>[: <remedy>]". open_api() must have
/// succeeded before.
Status refusal(ucs_status_t status, std::string_view what, std::string_view remedy = {});

}  // namespace xylem::transport::ucx
