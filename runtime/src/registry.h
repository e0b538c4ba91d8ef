// SPDX-License-Identifier: Apache-2.0
//
// Registry: the groups of a job, the slots that they have in tags, and how they end. It knows of a
// group no more than its uid and its slot.
//
//   slot:   free ──claim──► taken ──its group ends──────────────────────────────► free
//                             └─poisoned─► draining ──group gone, time over──────────┘
//
// Whoever drops the last reference of a group hands it to the registry, which ends it under the
// progress token. While a slot drains, what still arrives for it is dropped, so that members that
// have not heard yet of the group's end go on, and no later group gets it.
#pragma once

#include "wires.h"
#include "xylem/base/clock.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace xylem::runtime {

class Group;

/// A group that nobody refers to any more, with the function that ends it.
using Grave = std::unique_ptr<Group, void (*)(Group*)>;

class Registry {
 public:
  Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;
  ~Registry();

  // Any thread.
  std::shared_ptr<Group> find(std::uint64_t uid) const;
  std::vector<std::shared_ptr<Group>> groups() const;
  /// A bitmap of slots.
  std::vector<std::uint64_t> slots_taken() const;
  bool claim_slot(std::uint32_t slot);
  void free_slot(std::uint32_t slot) noexcept;
  /// Keeps the group for empty_graves(), or ends it at once after close().
  void bury(Grave group);
  bool has_graves() const noexcept { return has_graves_.load(std::memory_order_relaxed); }
  /// Some slot has not drained for as long as it must.
  bool is_draining() const noexcept { return is_draining_.load(std::memory_order_relaxed); }

  // Token holder.
  void enlist(std::uint64_t uid, std::weak_ptr<Group> group);
  /// The group takes no part any more: its slot comes free, at once or once it has drained.
  void delist(std::uint64_t uid, std::uint32_t slot) noexcept;
  /// The group in this slot was poisoned: the slot drains.
  void on_poisoned(std::uint32_t slot);
  void empty_graves();
  /// Drops what has arrived for slots that drain.
  void drain(const Wires& wires);
  /// Frees the slots that have drained.
  void end_drains(Clock::time_point now);

  /// The job ends: groups that are buried from now on end at once, on whatever thread.
  void close();

 private:
  struct Drain {
    std::uint32_t slot = 0;
    Clock::time_point until;  ///< Not before this does another group get the slot.
    bool is_group_gone = false;
  };

  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::weak_ptr<Group>> groups_;  ///< By uid.
  std::vector<std::uint64_t> slots_;
  std::vector<Grave> graves_;
  bool is_closed_ = false;
  std::atomic<bool> has_graves_{false};

  std::vector<Drain> drains_;
  std::atomic<bool> is_draining_{false};
};

}  // namespace xylem::runtime
