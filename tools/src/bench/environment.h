// SPDX-License-Identifier: Apache-2.0
//
// Finding out where and with what a benchmark runs.
#pragma once

#include "bench/options.h"
#include "bench/report.h"
#include "xylem/base/status.h"
#include "xylem/runtime/runtime.h"

#include <string>

namespace xylem::tools {

/// The processor's name as the system tells it.
std::string cpu_model();

/// Collective; the same on all ranks, but for machine and versions, which are the caller's own. The
/// lanes are those of connections that have carried something.
Result<BenchEnvironment> find_environment(const Runtime& runtime,
                                          const Communicator& control,
                                          const BenchOptions& options);

/// The transports in use, joined by '+'.
std::string transport_names(const BenchEnvironment& environment);

}  // namespace xylem::tools
