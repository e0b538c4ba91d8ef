// SPDX-License-Identifier: Apache-2.0
#include "xylem/base/copy.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "copy.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// This header must be included after Highway has chosen the target:
#include <hwy/cache_control.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace xylem::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using Bytes = hn::ScalableTag<std::uint8_t>;

/// Copies whole vectors with `put(vector, address)`, from the target's first cache-line boundary
/// on, and the bytes before and after these vectors with memcpy.
template <typename Put>
void copy_with(std::uint8_t* target, const std::uint8_t* source, std::size_t bytes, Put put) {
  constexpr std::size_t kLine = 64;
  const Bytes d;
  const std::size_t vector = hn::Lanes(d);
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(target) % kLine;
  std::size_t done = before < bytes ? before : bytes;
  std::memcpy(target, source, done);
  const std::size_t end = done + (bytes - done) / kLine * kLine;
  for (; done + 4 * vector <= end; done += 4 * vector) {
    std::uint8_t* const to = target + done;
    const std::uint8_t* const from = source + done;
    // All loads precede the first store, since a load would wait for an earlier store whose address
    // differs only in the page (4 KiB aliasing).
    const auto v0 = hn::LoadU(d, from), v1 = hn::LoadU(d, from + vector);
    const auto v2 = hn::LoadU(d, from + 2 * vector), v3 = hn::LoadU(d, from + 3 * vector);
    put(v0, to);
    put(v1, to + vector);
    put(v2, to + 2 * vector);
    put(v3, to + 3 * vector);
  }
  for (; done + vector <= end; done += vector) put(hn::LoadU(d, source + done), target + done);
  std::memcpy(target + done, source + done, bytes - done);
}

void copy_vectors(std::uint8_t* target, const std::uint8_t* source, std::size_t bytes) {
  copy_with(target, source, bytes, [](hn::Vec<Bytes> vector, std::uint8_t* to) HWY_ATTR {
    hn::StoreU(vector, Bytes(), to);
  });
}

void stream_vectors(std::uint8_t* target, const std::uint8_t* source, std::size_t bytes) {
  copy_with(target, source, bytes, [](hn::Vec<Bytes> vector, std::uint8_t* to) HWY_ATTR {
    hn::Stream(vector, Bytes(), to);
  });
}

}  // namespace
}  // namespace xylem::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace xylem {

HWY_EXPORT(copy_vectors);
HWY_EXPORT(stream_vectors);

void copy_many_bytes(void* target, const void* source, std::size_t bytes) noexcept {
  HWY_DYNAMIC_DISPATCH(copy_vectors)
  (static_cast<std::uint8_t*>(target), static_cast<const std::uint8_t*>(source), bytes);
}

void copy_piece_non_temporal(void* target, const void* source, std::size_t bytes) noexcept {
  if (bytes == 0) return;
  HWY_DYNAMIC_DISPATCH(stream_vectors)
  (static_cast<std::uint8_t*>(target), static_cast<const std::uint8_t*>(source), bytes);
}

void fence_non_temporal() noexcept { hwy::FlushStream(); }

void copy_non_temporal(void* target, const void* source, std::size_t bytes) noexcept {
  copy_piece_non_temporal(target, source, bytes);
  fence_non_temporal();
}

void copy_to(CopyTarget target, const void* source, std::size_t bytes) noexcept {
  (target.non_temporal ? copy_non_temporal : copy_bytes)(target.memory, source, bytes);
}

void copy_to_both(CopyTarget first,
                  CopyTarget second,
                  const void* source,
                  std::size_t bytes) noexcept {
  constexpr std::size_t kPiece = 4096, kLine = 64;
  std::size_t to_first = 0, to_second = 0;
  // Every copy except the last ends on a cache-line boundary of its target: writing one line in two
  // parts with non-temporal stores takes as long as writing many whole lines.
  const auto put = [&](CopyTarget target, std::size_t& done, std::size_t ready) {
    auto* const to = static_cast<std::byte*>(target.memory);
    if (ready < bytes) ready -= reinterpret_cast<std::uintptr_t>(to + ready) % kLine;
    const auto copy = target.non_temporal ? copy_piece_non_temporal : copy_bytes;
    copy(to + done, static_cast<const std::byte*>(source) + done, ready - done);
    done = ready;
  };
  for (std::size_t at = 0; at < bytes;) {
    at = std::min(bytes, at + kPiece);
    put(first, to_first, at);
    put(second, to_second, at);
  }
  if (first.non_temporal || second.non_temporal) fence_non_temporal();
}

}  // namespace xylem
#endif  // HWY_ONCE
