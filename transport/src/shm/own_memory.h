// SPDX-License-Identifier: Apache-2.0
//
// OwnMemory: the memory of this process, besides the segment, that peers can read (PeerMemory is
// its counterpart at the peer). The descriptor of memory from allocate_shared() is passed to a peer
// with the first message in this memory. Peers read other memory directly from this process, if the
// system permits that.
#pragma once

#include "shm/allocations.h"
#include "shm/peers.h"
#include "shm/segment.h"
#include "xylem/transport/transport.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace xylem::transport::shm {

class OwnMemory {
 public:
  explicit OwnMemory(Peers& peers) noexcept : peers_(&peers) {}

  /// Where the peer `to` may be able to read the source. `to` is null if the peer is not connected
  /// yet.
  Location locate(Peer* to, const ConstRegion& source) {
    const Allocation* shared = source.in_place == InPlace::never ? nullptr : find(source);
    if (shared != nullptr && to != nullptr && peers_->share(*to, *shared)) {
      const auto* at = static_cast<const std::byte*>(source.data);
      return {Location::Where::shared, shared->id, static_cast<std::uint64_t>(at - shared->memory)};
    }
    if (!may_pull(source)) return {};
    return {Location::Where::process, 0, reinterpret_cast<std::uintptr_t>(source.data)};
  }
  /// See Views::is_readable().
  bool is_readable(const ConstRegion& source) {
    return source.memory.kind != MemoryKind::host || may_pull(source) ||
           (source.in_place != InPlace::never && find(source) != nullptr);
  }
  void pull_from(std::uint64_t bytes) noexcept { pull_from_ = bytes; }
  bool may_be_pulled() const noexcept { return pull_from_ != kAnySize; }

  /// Updates the list of allocations, and informs peers which allocations have been freed.
  void update() {
    if (version_ != Allocations::of_process().version()) refresh();
  }
  /// Repeats the messages for which the sockets of peers had no room.
  void retry() {
    if (has_late_forgets_) refresh();
  }

 private:
  void refresh() {
    Allocations& allocations = Allocations::of_process();
    version_ = allocations.version();
    list_ = allocations.list();
    has_late_forgets_ = !peers_->revoke_freed(list_);
  }
  bool may_pull(const ConstRegion& source) const noexcept {
    return source.in_place == InPlace::anywhere && source.bytes >= pull_from_;
  }
  /// The allocation that contains the source. Null if there is none, or if the message is so short
  /// that copying it to a slot takes less time than waiting for the receiver to read it.
  const Allocation* find(const ConstRegion& source) {
    constexpr std::uint64_t kLeastBytes = 8 << 10;
    if (source.bytes < kLeastBytes) return nullptr;
    update();
    const auto at = std::ranges::find_if(list_, [&](const Allocation& allocation) {
      return allocation.holds(source.data, source.bytes);
    });
    return at == list_.end() ? nullptr : &*at;
  }

  Peers* peers_;
  std::vector<Allocation> list_;  ///< The list of allocations as of `version_`.
  std::uint64_t version_ = 0;
  bool has_late_forgets_ = false;
  std::uint64_t pull_from_ = kAnySize;
};

}  // namespace xylem::transport::shm
