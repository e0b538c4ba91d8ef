// SPDX-License-Identifier: Apache-2.0
//
// Translates ucs_status_t into Xylem's codes. No other part of Xylem sees ucs_status_t.
#pragma once

#include "xylem/base/status.h"

#include <ucs/type/status.h>

#include <string_view>

namespace xylem::transport::ucx {

/// The code for a UCX status. A status that no correct call produces becomes `internal`.
Code code_of(ucs_status_t status) noexcept;

/// After open_api(): "UCX could not <what>: <its reason>[: <remedy>]".
Status refusal(ucs_status_t status, std::string_view what, std::string_view remedy = {});

}  // namespace xylem::transport::ucx
