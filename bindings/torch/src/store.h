// SPDX-License-Identifier: Apache-2.0
//
// Lets the ranks meet through torch's key-value store.
#pragma once

#include "xylem/xylem.h"

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace xylem::pytorch {

/// Whether the key is set before the deadline. Polls the store, because waiting in the store can
/// block the ranks that set keys (FileStore) or print an error for the user if it times out
/// (TCPStore).
bool is_set(c10d::Store& store, const std::string& key, Deadline deadline);

/// A member of a group that is being started.
struct Member {
  int rank = 0;
  int size = 1;
};

/// Common data for the start of a group, equal on all members.
struct Meeting {
  std::shared_ptr<Store> store;  ///< With keys that no other start uses.
  std::string name;              ///< Unique to this start.
  std::string secret;            ///< Distinguishes members from other processes.
};

/// Meets the other members in the group's store. The store may contain data from an earlier start
/// of the same group: a job restarted by torchrun keeps its store.
///
/// Rank 0 draws a name and puts it into the store. Every other rank stores a number of its own
/// under that name, and accepts the name once rank 0 has confirmed that number. A name from an
/// earlier start is never confirmed, so the ranks look for a new one.
Result<Meeting> meet(const c10::intrusive_ptr<c10d::Store>& store,
                     const Member& member,
                     Deadline deadline);

}  // namespace xylem::pytorch
