// SPDX-License-Identifier: Apache-2.0
//
// How the members of a group find each other through torch's key-value store.
#pragma once

#include "xylem/xylem.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace xylem::pytorch {

/// Writes `size` random bytes, at most 256. Throws if the system provides none.
void fill_at_random(void* bytes, std::size_t size);

/// 32 hexadecimal digits, drawn at random.
std::string random_text();

/// Waits until the key is set. Returns false if it is not set before the deadline. Polls the store,
/// because the store's own wait can block the ranks that set keys (FileStore) or print an error for
/// the user if it times out (TCPStore).
bool is_set(c10d::Store& store, const std::string& key, Deadline deadline);

/// Whether torch has named the group by a hash, as it does with use_local_synchronization. The hash
/// differs among the members if they have made different groups before (up to torch 2.15,
/// `_hash_ranks_to_str`). The name of any other group is a number: each rank counts all groups that
/// are made, also those of which it is no member.
bool is_hash(const std::string& group_name);

/// The store through which the members of a group find each other. Torch passes `store` to a
/// backend with the group's name as a prefix of its keys. If the name is a hash, this prefix is
/// dropped, since it may differ among the members.
c10::intrusive_ptr<c10d::Store> meeting_place(const c10::intrusive_ptr<c10d::Store>& store,
                                              const std::string& group_name);

/// A member of a group that is being made.
struct Member {
  int rank = 0;
  std::vector<std::uint64_t> world_ranks;  ///< The world ranks of all members.
  /// Name of a job of this rank. All ranks of a job make groups in the same order, so they can
  /// compare their lists of members. Empty if the lists are not compared.
  std::string job;
};

/// What the members of a new group have in common.
struct Rendezvous {
  std::shared_ptr<Store> store;    ///< With keys that no other rendezvous uses.
  std::string name;                ///< Drawn at random: 32 hexadecimal digits.
  std::string secret;              ///< Distinguishes members from other processes.
  std::vector<std::string> cards;  ///< The cards of all members.
};

/// Finds the other members through the group's store: the ranks that pass the same list of members.
/// If another rank of the job `member.job` passes another list, fails with an error that names both
/// lists. `card` is one line of text that the other members receive. The store may contain data
/// from an earlier rendezvous of the same group: a job restarted by torchrun keeps its store.
///
/// Rank 0 draws a random name and stores it. Every other rank reads this name, and stores under it
/// its card with a random number. When rank 0 has read all cards, it stores the list of all cards.
/// A rank accepts this list if it contains the rank's own card with its number. The list of an
/// earlier rendezvous does not: a rank that finds such a list waits for a new name.
Result<Rendezvous> find_members(const c10::intrusive_ptr<c10d::Store>& store,
                                const Member& member,
                                const std::string& card,
                                Deadline deadline);

}  // namespace xylem::pytorch
