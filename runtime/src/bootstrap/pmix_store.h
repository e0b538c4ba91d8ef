// SPDX-License-Identifier: Apache-2.0
//
// The store of Open MPI's launcher (and of others that speak PMIx). libpmix is not linked, but
// loaded when a job needs it, so that Xylem also runs where libpmix is not installed.
#pragma once

#include "xylem/base/status.h"
#include "xylem/runtime/store.h"

#include <cstdint>
#include <memory>

namespace xylem::runtime {

/// PMIx distributes values in a fence that all processes enter. The first get() after a set()
/// enters such a fence, so all ranks must alternate in the same way, as with PmiStore. A value is
/// looked up by the rank that set it: the number after the key's last dot ("card.3"), or rank 0 if
/// the key contains no dot. open_pmix_store() fails with `unsupported` if this build has no support
/// for PMIx, or if this machine has no libpmix.so.2.
Result<std::shared_ptr<Store>> open_pmix_store(std::uint32_t rank, std::uint32_t size);

}  // namespace xylem::runtime
