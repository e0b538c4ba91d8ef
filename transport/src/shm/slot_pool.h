// SPDX-License-Identifier: Apache-2.0
//
// The slots of one's own segment. Those freed last are used first, while they are in the cache. Of
// each size every channel has one to itself, so that a peer that takes nothing stops nobody else.
#pragma once

#include "shm/segment.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace xylem::transport::shm {

class SlotPool {
 public:
  explicit SlotPool(const Geometry& geometry) : geometry_(geometry), uses_(geometry.slots()) {
    for (Size& size : sizes_) size.held.assign(geometry.channels, 0);
    for (std::uint32_t slot = geometry.slots(); slot-- > 0;) size_of(slot).free.push_back(slot);
    for (Size& size : sizes_) size.idle_channels = geometry.channels;
  }

  /// A slot for `readers` channels, on the account of `channel`.
  std::optional<std::uint32_t> take(std::uint32_t channel,
                                    std::uint64_t bytes,
                                    std::uint32_t readers = 1) {
    Size& size = sizes_[bytes > geometry_.small_bytes];
    const bool is_first = size.held[channel] == 0;
    if (size.free.empty() || (!is_first && size.free.size() <= size.idle_channels)) {
      return std::nullopt;
    }
    if (is_first) --size.idle_channels;
    ++size.held[channel];
    const std::uint32_t slot = size.free.back();
    size.free.pop_back();
    uses_[slot] = {channel, readers};
    return slot;
  }

  /// One of its readers is done with it.
  void give_back(std::uint32_t slot) {
    Use& use = uses_[slot];
    if (--use.readers > 0) return;
    Size& size = size_of(slot);
    if (--size.held[use.channel] == 0) ++size.idle_channels;
    size.free.push_back(slot);
  }

 private:
  struct Size {
    std::vector<std::uint32_t> free;
    std::vector<std::uint32_t> held;  ///< By channel.
    std::uint32_t idle_channels = 0;  ///< Those that hold none.
  };
  struct Use {
    std::uint32_t channel = 0;  ///< On whose account it is.
    std::uint32_t readers = 0;
  };

  Size& size_of(std::uint32_t slot) { return sizes_[slot >= geometry_.small_slots]; }

  Geometry geometry_;
  std::vector<Use> uses_;  ///< By slot.
  Size sizes_[2];          ///< Small, large.
};

}  // namespace xylem::transport::shm
