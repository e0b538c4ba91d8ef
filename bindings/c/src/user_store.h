// SPDX-License-Identifier: Apache-2.0
//
// A store that the caller provides as two C functions.
#pragma once

#include "xylem/base/status.h"
#include "xylem/runtime/store.h"
#include "xylem/xylem_c.h"

#include <memory>

namespace xylem::c {

Result<std::shared_ptr<Store>> make_user_store(const xylem_store& given);

}  // namespace xylem::c
