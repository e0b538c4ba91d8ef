// SPDX-License-Identifier: Apache-2.0
//
// Registry: finds the groups of a job by uid, assigns their tag slots, and deletes the groups that
// have no references. In this file, a slot is always a tag slot.
//
//   slot:   free ──claim──► taken ──its group ends──────────────────────────────► free
//                             └─poisoned─► draining ──group gone, time over──────────┘
//
// When the last reference to a group is dropped, the registry deletes the group: under the progress
// token or, after the job has ended, at once. While a slot drains, messages that arrive for it are
// dropped. So pending sends of other members complete, even if these members have not been informed
// of the failure yet. Another group can claim the slot only after it has drained.
#pragma once

#include "progress/token.h"
#include "progress/work_source.h"
#include "wires/wires.h"
#include "xylem/base/clock.h"
#include "xylem/base/mutex.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace xylem::runtime {

class Group;

/// A group without references, with the function that deletes it.
using DeferredDelete = std::unique_ptr<Group, void (*)(Group*)>;

class Registry final : public WorkSource {
 public:
  Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;
  ~Registry() override;

  // Any thread may call these functions:
  std::shared_ptr<Group> find(std::uint64_t uid) const;
  std::vector<std::shared_ptr<Group>> groups() const;
  /// Claims the lowest free slot. Empty if no slot is free. Slot 0 belongs to the world, and never
  /// becomes free.
  std::optional<std::uint32_t> claim_slot();
  /// Stores the group until delete_deferred() deletes it. After close(), deletes it at once.
  void defer_delete(DeferredDelete group);
  /// True while the drain time of some slot has not passed.
  bool is_draining() const noexcept { return is_draining_.load(std::memory_order_relaxed); }
  Need need() const noexcept override {
    if (has_deferred_.load(std::memory_order_relaxed)) return Need::turn_now;
    return is_draining() ? Need::turns : Need::nothing;
  }

  void enlist(Token token, std::uint64_t uid, std::weak_ptr<Group> group);
  /// Call this when this rank has left the group.
  void delist(Token token, std::uint64_t uid) noexcept;
  /// Frees the slot of a group that this rank has left: when the slot has drained, or at once if it
  /// does not drain.
  void vacate(Token token, std::uint32_t slot) noexcept;
  /// Call this when the group in this slot was poisoned: the slot starts to drain.
  void on_poisoned(Token token, std::uint32_t slot);
  /// Releases a claimed slot for which no group was made. Other ranks may still send to the slot,
  /// so it drains first.
  void abandon(Token token, std::uint32_t slot);
  void delete_deferred(Token token);
  /// Drops messages that have arrived for slots that drain, and calls delete_deferred().
  unsigned turn(Token token) override;
  /// Frees the slots that have drained.
  void tick(Token token, Clock::time_point now) override;

  /// Sets the wires of the job, which must outlive the last turn.
  void open(Wires& wires) noexcept { wires_ = &wires; }
  /// Call this when the job ends: groups whose last reference is dropped from now on are deleted at
  /// once, on the calling thread.
  void close();

 private:
  struct Drain {
    std::uint32_t slot = 0;
    Clock::time_point until;  ///< No other group can claim the slot before this time.
    bool is_group_gone = false;
  };
  void free_slot(std::uint32_t slot) noexcept XYLEM_LOCKING(locks_excluded(mutex_));

  mutable Mutex mutex_;
  /// The key is the uid of the group.
  std::map<std::uint64_t, std::weak_ptr<Group>> groups_ XYLEM_LOCKING(guarded_by(mutex_));
  std::vector<std::uint64_t> slots_ XYLEM_LOCKING(guarded_by(mutex_));
  std::vector<DeferredDelete> deferred_ XYLEM_LOCKING(guarded_by(mutex_));
  bool is_closed_ XYLEM_LOCKING(guarded_by(mutex_)) = false;
  std::atomic<bool> has_deferred_{false};

  Wires* wires_ = nullptr;
  std::vector<Drain> drains_;
  std::atomic<bool> is_draining_{false};
};

}  // namespace xylem::runtime
