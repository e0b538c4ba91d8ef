// SPDX-License-Identifier: Apache-2.0
//
// SlotPool: the slots of this transport's segment. One slot of each size is reserved for every
// channel, so a peer that consumes nothing cannot block the other channels.
//
// The slot that has been free for the longest time is used first. A slot that a peer has just read
// is still in this peer's cache, and each line must be fetched back before it is written. Once the
// lines have been evicted from this cache, writing is up to four times as fast ("Copies between
// cores" in bench/results/2026-11-29-history.md).
#pragma once

#include "shm/segment.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace xylem::transport::shm {

class SlotPool {
 public:
  explicit SlotPool(const Geometry& geometry)
      : small_bytes_(geometry.small_bytes),
        small_slots_(geometry.small_slots),
        uses_(geometry.slots()) {
    sizes_[0] = Size(0, geometry.small_slots, geometry.channels);
    sizes_[1] = Size(geometry.small_slots, geometry.large_slots, geometry.channels);
  }

  std::optional<std::uint32_t> acquire(std::uint32_t channel, std::uint64_t bytes) {
    Size& size = sizes_[bytes > small_bytes_];
    const bool is_first = size.held[channel] == 0;
    if (size.count == 0 || (!is_first && !size.has_unreserved())) return std::nullopt;
    if (is_first) --size.idle_channels;
    ++size.held[channel];
    return pop(size, {channel, 1});
  }

  /// Acquires one slot for several readers. Does not use the slots that are reserved for channels.
  std::optional<std::uint32_t> acquire_shared(std::uint32_t readers, std::uint64_t bytes) {
    Size& size = sizes_[bytes > small_bytes_];
    if (!size.has_unreserved()) return std::nullopt;
    return pop(size, {kShared, readers});
  }

  /// Call this when a reader has finished with the slot. The slot is free when all its readers
  /// have.
  void release(std::uint32_t slot) {
    Use& use = uses_[slot];
    if (--use.readers > 0) return;
    Size& size = sizes_[slot >= small_slots_];
    if (use.channel != kShared && --size.held[use.channel] == 0) ++size.idle_channels;
    size.free[(size.first + size.count++) % size.free.size()] = slot;
  }

 private:
  static constexpr std::uint32_t kShared = ~0U;

  struct Use {
    std::uint32_t channel = 0;  ///< The channel that holds the slot, or kShared.
    std::uint32_t readers = 0;
  };
  struct Size {
    std::vector<std::uint32_t> free;  ///< Ring buffer: `count` slots from `first` on.
    std::uint32_t first = 0, count = 0;
    std::vector<std::uint32_t> held;  ///< held[c] is the number of slots that channel c holds.
    std::uint32_t idle_channels = 0;  ///< Number of channels that hold no slot.

    Size() = default;
    Size(std::uint32_t begin, std::uint32_t slots, std::uint32_t channels)
        : free(slots), count(slots), held(channels), idle_channels(channels) {
      for (std::uint32_t i = 0; i < slots; ++i) free[i] = begin + i;
    }
    bool has_unreserved() const { return count > idle_channels; }
  };

  std::uint32_t pop(Size& size, const Use& use) {
    const std::uint32_t slot = size.free[size.first];
    size.first = (size.first + 1) % static_cast<std::uint32_t>(size.free.size());
    --size.count;
    uses_[slot] = use;
    return slot;
  }

  std::uint32_t small_bytes_, small_slots_;
  std::vector<Use> uses_;  ///< The use of each slot.
  Size sizes_[2];          ///< The small slots, and the large slots.
};

}  // namespace xylem::transport::shm
