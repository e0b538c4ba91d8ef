// SPDX-License-Identifier: Apache-2.0
//
// Launcher: what started this process, and what it tells us: rank, size, job identity, and how
// ranks can meet.
#pragma once

#include "config.h"
#include "xylem/base/status.h"
#include "xylem/runtime/options.h"
#include "xylem/runtime/store.h"

#include <cstdint>
#include <memory>
#include <string>

namespace xylem::runtime {

/// What a job's secret is made of.
enum class SecretOrigin : std::uint8_t {
  given,  ///< XYLEM_SECRET.
  user,   ///< The user's key (user_key.h): the ranks meet on this host alone.
  job,    ///< The job's identity, which is none: other hosts' ranks know nothing else.
};

/// A process's place in its job.
struct Placement {
  std::string launcher = "none";  ///< "options", "xylem", "torchrun", "openmpi", "mpich", "slurm",
                                  ///< "none" (a job of one).
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::string job;  ///< Identity and incarnation of the job: differs between two jobs on one host
                    ///< and between restarts.
  std::string secret;  ///< What members prove knowledge of.
  SecretOrigin secret_origin = SecretOrigin::job;
  /// A host at which all ranks can meet, where the launcher or the rendezvous names one; else
  /// empty. The way towards it decides the interface.
  std::string meeting_host;
};

/// Precedence: options/XYLEM_ variables; torchrun; Open MPI; MPICH; Slurm; a job of one. Half-set
/// variables (rank without size, rank ≥ size) are invalid_argument naming them.
Result<Placement> detect_placement(const Config& config, const Environment& environment);

/// The store through which this job's ranks meet: the user's, a directory, TCP served by rank 0, or
/// the launcher's (PMI-1 for MPICH, PMIx for Open MPI). Under torchrun and Slurm rank 0 serves on
/// the first free of a few ports derived from the job's identity, and the others find it by proving
/// the job to each other; MASTER_PORT itself is never bound.
Result<std::shared_ptr<Store>> open_store(const Placement& placement,
                                          const Config& config,
                                          const Environment& environment,
                                          const std::shared_ptr<Store>& users,
                                          const Logger& logger,
                                          Deadline deadline);

}  // namespace xylem::runtime
