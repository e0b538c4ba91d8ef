// SPDX-License-Identifier: Apache-2.0
//
// How Xylem's failures reach Python: by remedy, as the exceptions that torch.distributed's users
// catch.
#pragma once

#include "xylem/xylem.h"

#include <exception>
#include <string>

namespace xylem::pytorch {

/// invalid_argument is ValueError, unsupported NotImplementedError, anything else
/// torch.distributed.DistBackendError (a RuntimeError).
std::exception_ptr exception_of(const Status& failure);
/// Throws it, unless `status` is OK.
void check(const Status& status);
/// Refuses the caller's arguments.
[[noreturn]] void refuse(const std::string& why);

}  // namespace xylem::pytorch
