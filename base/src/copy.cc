// SPDX-License-Identifier: Apache-2.0
#include "xylem/base/copy.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "copy.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// Only after Highway has chosen the target:
#include <hwy/cache_control.h>

#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace xylem::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using Bytes = hn::ScalableTag<std::uint8_t>;

void stream_bytes(std::uint8_t* target, const std::uint8_t* source, std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  const Bytes d;
  const std::size_t lanes = hn::Lanes(d);
  // From the first whole line of the target on, four vectors at a time.
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(target) % kLine;
  std::size_t done = before < bytes ? before : bytes;
  std::memcpy(target, source, done);
  for (; done + 4 * lanes <= bytes; done += 4 * lanes) {
    for (std::size_t i = done; i < done + 4 * lanes; i += lanes) {
      hn::Stream(hn::LoadU(d, source + i), d, target + i);
    }
  }
  std::memcpy(target + done, source + done, bytes - done);
}

}  // namespace
}  // namespace xylem::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace xylem {

HWY_EXPORT(stream_bytes);

void copy_piece_past_cache(void* target, const void* source, std::size_t bytes) noexcept {
  if (bytes == 0) return;
  HWY_DYNAMIC_DISPATCH(stream_bytes)
  (static_cast<std::uint8_t*>(target), static_cast<const std::uint8_t*>(source), bytes);
}

void end_past_cache() noexcept { hwy::FlushStream(); }

void copy_past_cache(void* target, const void* source, std::size_t bytes) noexcept {
  copy_piece_past_cache(target, source, bytes);
  end_past_cache();
}

}  // namespace xylem
#endif  // HWY_ONCE
