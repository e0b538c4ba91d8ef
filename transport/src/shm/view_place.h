// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace xylem::transport::shm {

/// The place that a View shows, encoded in its id.
struct ViewPlace {
  std::uint32_t channel = 0;
  bool is_stream = false;
  std::uint32_t number = 0;  ///< The number of an entry in its ring, or of a stream; below 2³¹.
};

constexpr std::uint64_t pack(const ViewPlace& place) noexcept {
  return std::uint64_t{place.channel} << 32 | std::uint64_t{place.is_stream} << 31 | place.number;
}
constexpr ViewPlace unpack(std::uint64_t id) noexcept {
  return {static_cast<std::uint32_t>(id >> 32), (id >> 31 & 1) != 0,
          static_cast<std::uint32_t>(id & 0x7fff'ffff)};
}

}  // namespace xylem::transport::shm
