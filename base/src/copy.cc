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

/// Four vectors at a time, each written by write(vector, where): all of `bytes` but for less than
/// four vectors at the end. Returns how much.
template <typename Write>
HWY_INLINE std::size_t copy_fours(std::uint8_t* target,
                                  const std::uint8_t* source,
                                  std::size_t bytes,
                                  Write write) {
  const Bytes d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + 4 * lanes <= bytes; i += 4 * lanes) {
    const auto a = hn::LoadU(d, source + i);
    const auto b = hn::LoadU(d, source + i + lanes);
    const auto c = hn::LoadU(d, source + i + 2 * lanes);
    const auto e = hn::LoadU(d, source + i + 3 * lanes);
    write(a, target + i);
    write(b, target + i + lanes);
    write(c, target + i + 2 * lanes);
    write(e, target + i + 3 * lanes);
  }
  return i;
}

/// How much lies before the first whole line of the target.
std::size_t head_of(const std::uint8_t* target, std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  const std::size_t head = -reinterpret_cast<std::uintptr_t>(target) % kLine;
  return head < bytes ? head : bytes;
}

void copy_cached(std::uint8_t* target, const std::uint8_t* source, std::size_t bytes) {
  const std::size_t head = head_of(target, bytes);
  std::memcpy(target, source, head);
  const std::size_t done =
      head + copy_fours(target + head, source + head, bytes - head,
                        [](auto vector, std::uint8_t* to) { hn::StoreU(vector, Bytes(), to); });
  std::memcpy(target + done, source + done, bytes - done);
}

void copy_streaming(std::uint8_t* target, const std::uint8_t* source, std::size_t bytes) {
  const std::size_t head = head_of(target, bytes);
  std::memcpy(target, source, head);
  const std::size_t done =
      head + copy_fours(target + head, source + head, bytes - head,
                        [](auto vector, std::uint8_t* to) { hn::Stream(vector, Bytes(), to); });
  std::memcpy(target + done, source + done, bytes - done);
  hwy::FlushStream();
}

}  // namespace
}  // namespace xylem::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace xylem {

HWY_EXPORT(copy_cached);
HWY_EXPORT(copy_streaming);

void copy_bytes(void* target, const void* source, std::size_t bytes) noexcept {
  constexpr std::size_t kFew = 1024;
  if (bytes <= kFew) {
    if (bytes > 0) std::memcpy(target, source, bytes);
    return;
  }
  HWY_DYNAMIC_DISPATCH(copy_cached)
  (static_cast<std::uint8_t*>(target), static_cast<const std::uint8_t*>(source), bytes);
}

void copy_past_cache(void* target, const void* source, std::size_t bytes) noexcept {
  if (bytes == 0) return;
  HWY_DYNAMIC_DISPATCH(copy_streaming)
  (static_cast<std::uint8_t*>(target), static_cast<const std::uint8_t*>(source), bytes);
}

}  // namespace xylem
#endif  // HWY_ONCE
