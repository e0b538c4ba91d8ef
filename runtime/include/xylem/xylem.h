// SPDX-License-Identifier: Apache-2.0
//
// Xylem's C++ API: create a Runtime, call operations on its world() Communicator, and wait for
// their Work.
#pragma once

#include "xylem/base/status.h"           // IWYU pragma: export
#include "xylem/runtime/allocation.h"    // IWYU pragma: export
#include "xylem/runtime/communicator.h"  // IWYU pragma: export
#include "xylem/runtime/options.h"       // IWYU pragma: export
#include "xylem/runtime/runtime.h"       // IWYU pragma: export
#include "xylem/runtime/types.h"         // IWYU pragma: export
#include "xylem/runtime/work.h"          // IWYU pragma: export
