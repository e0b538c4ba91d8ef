// SPDX-License-Identifier: Apache-2.0
//
// Dice: a small random generator that loopback uses to reorder messages. Its whole sequence follows
// from the seed, so a failing interleaving can be run again.
#pragma once

#include "xylem/base/hash.h"

#include <cstdint>

namespace xylem::transport::loopback {

/// Seed 0 means "in order": callers that find ordered() true draw no numbers.
class Dice {
 public:
  Dice(std::uint64_t seed, std::uint64_t stream) noexcept
      : ordered_(seed == 0), state_(combine(seed, stream)) {}

  bool ordered() const noexcept { return ordered_; }
  /// A number in [0, sides); `sides` is positive. The slight bias of the modulo does not matter
  /// here.
  std::uint64_t below(std::uint64_t sides) noexcept {
    state_ += 0x9e3779b97f4a7c15ULL;
    return mix(state_) % sides;
  }
  bool coin() noexcept { return below(2) == 0; }

 private:
  bool ordered_;
  std::uint64_t state_;
};

}  // namespace xylem::transport::loopback
