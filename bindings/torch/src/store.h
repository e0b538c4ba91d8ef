// SPDX-License-Identifier: Apache-2.0
//
// torch's key-value store as the one that ranks meet through.
#pragma once

#include "xylem/xylem.h"

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace xylem::pytorch {

/// Whether the key is set before the deadline. Asks now and then: whoever waits in a store may keep
/// it from those who set keys (FileStore), or tells the user that he waited in vain (TCPStore).
bool is_set(c10d::Store& store, const std::string& key, Deadline deadline);

/// A member of a group that is about to start.
struct Member {
  int rank = 0;
  int size = 1;
};

/// What the members of a group start with, alike on all of them.
struct Meeting {
  std::shared_ptr<Store> store;  ///< Whose keys no other start has.
  std::string name;              ///< That no other start has.
  std::string secret;            ///< Which tells members from others.
};

/// Meets the other members in the group's store, which may hold what an earlier start of the same
/// group left there: a job that torchrun has restarted keeps its store.
///
/// Rank 0 draws a name and leaves it in the store; the others leave a number of their own under
/// that name, and believe in it when rank 0 has repeated the number. A name that somebody has left
/// who is gone is never confirmed, and they look for another.
Result<Meeting> meet(const c10::intrusive_ptr<c10d::Store>& store,
                     const Member& member,
                     Deadline deadline);

}  // namespace xylem::pytorch
