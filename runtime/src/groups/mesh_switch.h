// SPDX-License-Identifier: Apache-2.0
//
// MeshSwitch: from which call on a group's calls on streams run on its mesh, if the ranks make the
// mesh while they already make calls (Communicator::bind_later()).
//
// All ranks make the same calls on streams, so they number them in the same way. When a rank can
// use the mesh, it proposes a number that is some calls ahead of its own, and makes no call from
// this number on until it knows the proposals of all ranks. The mesh begins with the largest
// proposal, which no rank has reached.
#pragma once

#include "xylem/base/mutex.h"

#include <atomic>
#include <cstdint>
#include <optional>

namespace xylem::runtime {

/// Any thread may call the functions.
class MeshSwitch {
 public:
  /// A number that no call reaches.
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  /// How many calls a proposal is ahead.
  static constexpr std::uint64_t kAhead = 64;

  /// From now on, calls are counted. Before begin(), all calls run on the mesh, if there is one.
  void begin() noexcept { is_counting_.store(true, std::memory_order_release); }
  bool is_counting() const noexcept { return is_counting_.load(std::memory_order_acquire); }

  /// The number of the next call on a stream.
  std::uint64_t number_call() {
    const Lock lock(mutex_);
    return calls_++;
  }
  /// The proposal of this rank.
  std::uint64_t propose() {
    const Lock lock(mutex_);
    proposal_ = calls_ + kAhead;
    return proposal_;
  }
  /// `first` is the first call on the mesh, or kNever. Only the first decision counts.
  void decide(std::uint64_t first) {
    const Lock lock(mutex_);
    if (!first_) first_ = first;
  }
  bool is_decided() const {
    const Lock lock(mutex_);
    return first_.has_value();
  }
  /// Whether a call runs on the mesh. Empty if the caller must wait, and ask again.
  std::optional<bool> is_on_mesh(std::uint64_t call) const {
    const Lock lock(mutex_);
    if (first_) return call >= *first_;
    return call < proposal_ ? std::optional(false) : std::nullopt;
  }

 private:
  std::atomic<bool> is_counting_{false};
  mutable Mutex mutex_;
  std::uint64_t calls_ XYLEM_LOCKING(guarded_by(mutex_)) = 0;
  std::uint64_t proposal_ XYLEM_LOCKING(guarded_by(mutex_)) = kNever;
  std::optional<std::uint64_t> first_ XYLEM_LOCKING(guarded_by(mutex_));
};

}  // namespace xylem::runtime
