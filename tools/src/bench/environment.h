// SPDX-License-Identifier: Apache-2.0
//
// The environment of a benchmark: machine, job and versions.
#pragma once

#include "bench/options.h"
#include "bench/report.h"
#include "xylem/base/status.h"
#include "xylem/runtime/runtime.h"

#include <string>

namespace xylem::tools {

/// The processor's name as the system reports it.
std::string cpu_model();

/// Collective. The result is equal on all ranks, except for the machine and the versions, which are
/// those of the calling rank. Lanes are known only for connections that have carried data.
Result<BenchEnvironment> find_environment(const Runtime& runtime,
                                          const Communicator& control,
                                          const BenchOptions& options);

/// The transports in use, joined by '+'.
std::string transport_names(const BenchEnvironment& environment);

}  // namespace xylem::tools
