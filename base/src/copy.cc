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

/// `put`s the whole lines of the target by vectors, and the rest as it comes.
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
    // All are loaded before the first is stored: a load waits for a store before it whose address
    // differs in nothing but the page.
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

void copy_piece_past_cache(void* target, const void* source, std::size_t bytes) noexcept {
  if (bytes == 0) return;
  HWY_DYNAMIC_DISPATCH(stream_vectors)
  (static_cast<std::uint8_t*>(target), static_cast<const std::uint8_t*>(source), bytes);
}

void end_past_cache() noexcept { hwy::FlushStream(); }

void copy_past_cache(void* target, const void* source, std::size_t bytes) noexcept {
  copy_piece_past_cache(target, source, bytes);
  end_past_cache();
}

}  // namespace xylem
#endif  // HWY_ONCE
