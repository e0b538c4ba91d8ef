// SPDX-License-Identifier: Apache-2.0
#include "kernels/stream.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/stream.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace xylem::runtime {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void stream_bytes(void* target, const void* source, std::size_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d);
  auto* to = static_cast<std::uint8_t*>(target);
  const auto* from = static_cast<const std::uint8_t*>(source);
  // Whole lines of the target are written at once; what is before the first is copied.
  constexpr std::size_t kLine = 64;
  const std::size_t head =
      std::min(bytes, (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine);
  std::memcpy(to, from, head);
  std::size_t i = head;
  const std::size_t stride = std::max(kLine, lanes);
  for (; i + stride <= bytes; i += stride) {
    for (std::size_t lane = 0; lane < stride; lane += lanes) {
      hn::Stream(hn::LoadU(d, from + i + lane), d, to + i + lane);
    }
  }
  std::memcpy(to + i, from + i, bytes - i);
  hwy::FlushStream();
}

}  // namespace HWY_NAMESPACE
}  // namespace xylem::runtime
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace xylem::runtime {

HWY_EXPORT(stream_bytes);

void copy_past_cache(void* target, const void* source, std::size_t bytes) {
  if (bytes > 0) HWY_DYNAMIC_DISPATCH(stream_bytes)(target, source, bytes);
}

}  // namespace xylem::runtime
#endif  // HWY_ONCE
