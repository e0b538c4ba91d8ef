// SPDX-License-Identifier: Apache-2.0
//
// The border that ucs_status_t does not cross: UCX's outcomes in Xylem's terms.
#pragma once

#include "xylem/base/status.h"

#include <ucs/type/status.h>

#include <string_view>

namespace xylem::transport::ucx {

/// The remedy for an outcome of UCX. An outcome that no correct call yields is `internal`.
Code code_of(ucs_status_t status) noexcept;

/// "UCX could not <what>: <its reason>[: <remedy>]".
Status refusal(ucs_status_t status, std::string_view what, std::string_view remedy = {});

}  // namespace xylem::transport::ucx
