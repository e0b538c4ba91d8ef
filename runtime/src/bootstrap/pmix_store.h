// SPDX-License-Identifier: Apache-2.0
//
// The store of Open MPI's launcher (and of others that speak PMIx). libpmix is loaded when it is
// needed and not linked, so that Xylem runs where there is none.
#pragma once

#include "xylem/base/status.h"
#include "xylem/runtime/store.h"

#include <cstdint>
#include <memory>

namespace xylem::runtime {

/// PMIx spreads values in a fence that all processes enter: the first get() after a set() is one,
/// so every rank must alternate alike, as with PmiStore. It asks for a value by the rank that set
/// it: the number after a key's last dot ("card.3"), or rank 0 for a key without one. `unsupported`
/// where this build has no PMIx or this machine no libpmix.so.2.
Result<std::shared_ptr<Store>> open_pmix_store(std::uint32_t rank, std::uint32_t size);

}  // namespace xylem::runtime
