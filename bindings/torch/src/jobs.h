// SPDX-License-Identifier: Apache-2.0
//
// The jobs of this process, which its groups share. A process has one job in most programs: that of
// the first group, which all later groups among the same ranks join.
//
//   meet in the group's store ──► a job that all members have: form a communicator in it
//                         └─────► otherwise: start a job, whose world is the group
//
// Only the members of a new group meet. Each writes a card, which lists the jobs of which it is a
// member, and a seat in each of them. All read the same cards, so all choose the same job. A rank
// leaves a job when the last of its groups in this job ends, whichever group that is.
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

/// A job in which this process is a rank. If ranks are threads, there is one object for each of
/// them. Thread-safe.
struct SharedJob {
  std::string name;  ///< Drawn at random; the same at all ranks of the job.
  std::uint64_t world_rank = 0;
  /// Appended to errors, which name ranks of the job: the corresponding ranks of the world. Empty
  /// if they are equal.
  std::string note;
  Runtime runtime;  ///< Its destructor leaves the job.
};

/// This process's part in a group.
struct Membership {
  std::shared_ptr<SharedJob> job;
  Communicator group;
  std::string name;  ///< Drawn at random for this group; the same at all members.
};

/// Meets the other members in the store. Collective over them alone. Throws.
Membership join_group(const c10::intrusive_ptr<c10d::Store>& store, const GroupOptions& group);

}  // namespace xylem::pytorch
