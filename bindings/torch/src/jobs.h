// SPDX-License-Identifier: Apache-2.0
//
// The jobs of this process, which its groups share. In most programs a process has one job: the
// first group starts it, and all later groups among the same ranks use it.
//
//   cards in the group's store ──► all members share a job: form a communicator in it
//                          └─────► otherwise: start a job, whose world is the group
//
// Only the members of a new group take part. Each member stores a card, which lists its jobs and,
// for each job, a seat that it has taken there (Seat). All members read the same cards, so all
// choose the same job. A rank leaves a job when the last of the rank's groups in the job is shut
// down.
#pragma once

#include "on_device.h"
#include "xylem/xylem.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace xylem::pytorch {

/// Options of a new group. Equal on all members, except for `rank`.
struct GroupOptions {
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout{kBackendDefaultTimeout};
  std::string name;
  /// The members' ranks in the world; empty for the world itself.
  std::vector<std::uint64_t> global_ranks;
  BlockingWait blocking_wait = BlockingWait::by_need;
};

/// A job in which this process is a rank. If several ranks are threads of the process, each has its
/// own SharedJob. Thread-safe.
struct SharedJob {
  std::string name;  ///< Drawn at random; the same at all ranks of the job.
  std::uint64_t world_rank = 0;
  /// Text that is appended to errors. Errors name ranks of the job; the text lists the
  /// corresponding ranks of the world. Empty if each rank of the job is equal to its rank in the
  /// world.
  std::string note;
  Runtime runtime;  ///< Its destructor leaves the job.
};

/// A rank's handles to a group.
struct Membership {
  std::shared_ptr<SharedJob> job;
  Communicator group;
  std::string name;  ///< Drawn at random for this group; the same at all members.
};

/// Finds the other members of the group through the store, and forms the group's communicator in a
/// shared job or in a new one. Collective over the members of the group. Throws if this fails.
Membership join_group(const c10::intrusive_ptr<c10d::Store>& store, const GroupOptions& group);

}  // namespace xylem::pytorch
