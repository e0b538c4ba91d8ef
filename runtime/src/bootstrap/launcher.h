// SPDX-License-Identifier: Apache-2.0
//
// Launcher: what started this process, and what it provides: the rank, the size, the job's
// identity, and a way in which ranks find each other.
#pragma once

#include "config.h"
#include "xylem/base/status.h"
#include "xylem/runtime/options.h"
#include "xylem/runtime/store.h"

#include <cstdint>
#include <memory>
#include <string>

namespace xylem::runtime {

/// What a job's secret is derived from.
enum class SecretOrigin : std::uint8_t {
  given,  ///< XYLEM_SECRET.
  user,   ///< The user's key (user_key.h): all ranks are on this host.
  job,    ///< The job's identity, which is not secret: ranks on several hosts share nothing else.
};

/// A process's rank in its job, and the job's identity.
struct Placement {
  std::string launcher = "none";  ///< "options", "xylem", "torchrun", "openmpi", "mpich", "slurm",
                                  ///< "none" (a job of one rank).
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::string job;  ///< Identity of the job and of this start: differs between two jobs on one host
                    ///< and between restarts.
  std::string secret;  ///< Members must prove that they know this secret.
  SecretOrigin secret_origin = SecretOrigin::job;
  /// A host that all ranks can reach, if the launcher or XYLEM_RENDEZVOUS names one; otherwise
  /// empty. The route to this host decides which interface is chosen.
  std::string rendezvous_host;
};

/// The placement from the first of these sources that is set: Options or XYLEM_ variables;
/// torchrun; Open MPI; MPICH; Slurm. If none is set, the job has one rank. Fails with
/// invalid_argument, and names the variables, if variables are missing or wrong (rank without size,
/// rank ≥ size).
Result<Placement> detect_placement(const Config& config, const Environment& environment);

/// The store through which this job's ranks find each other: the user's store (`users`), a
/// FileStore, a TcpStore, which rank 0 serves, or the launcher's store (PMI-1 for MPICH, PMIx for
/// Open MPI). Under torchrun and Slurm, rank 0 serves on the first free port of a few ports that
/// are derived from the job's identity. The other ranks recognize the right port, since both sides
/// prove that they belong to the job. MASTER_PORT itself is never bound.
Result<std::shared_ptr<Store>> open_store(const Placement& placement,
                                          const Config& config,
                                          const Environment& environment,
                                          const std::shared_ptr<Store>& users,
                                          const Logger& logger,
                                          Deadline deadline);

}  // namespace xylem::runtime
