// SPDX-License-Identifier: Apache-2.0
#include "xylem/collectives/symmetry.h"

#include "xylem/base/check.h"

#include <algorithm>
#include <numeric>

namespace xylem::collectives {

namespace {

// The number of blocks after which a digit repeats.
std::uint64_t cycle_of(const Symmetry::Digit& digit) {
  return std::uint64_t{digit.radix} * digit.block_stride;
}

}  // namespace

bool has_free_parts(Collective collective) noexcept {
  return collective == Collective::all_reduce || collective == Collective::reduce ||
         collective == Collective::broadcast;
}

Symmetry::Symmetry(std::vector<Digit> digits) : digits_(std::move(digits)) {
  XYLEM_CHECK(!digits_.empty() && digits_[0].rank_stride > 0, digits_.size());
  std::uint64_t ranks = digits_[0].rank_stride;
  for (const Digit& digit : digits_) {
    XYLEM_CHECK(digit.radix > 0 && digit.rank_stride == ranks, digit.radix, digit.rank_stride);
    ranks *= digit.radix;
    XYLEM_CHECK(ranks < kNone && cycle_of(digit) < kNone, digit.radix, digit.block_stride);
  }
  representatives_ = digits_[0].rank_stride;
  ranks_ = static_cast<std::uint32_t>(ranks);
  for (const Digit& one : digits_) {
    for (const Digit& other : digits_) {
      const bool apart = one.block_stride == 0 || &one == &other ||
                         other.block_stride % cycle_of(one) == 0 ||
                         one.block_stride % cycle_of(other) == 0;
      XYLEM_CHECK(apart, one.block_stride, other.block_stride);
    }
  }
}

std::uint32_t Symmetry::move(std::uint32_t number,
                             std::uint32_t shift,
                             Stride stride) const noexcept {
  for (const Digit& digit : digits_) {
    const std::uint32_t by = shift / digit.rank_stride % digit.radix;
    if (by == 0 || digit.*stride == 0) continue;
    const std::uint32_t value = number / (digit.*stride) % digit.radix;
    number -= value * (digit.*stride);
    number += (value + by) % digit.radix * (digit.*stride);
  }
  return number;
}

std::uint32_t Symmetry::inverse(std::uint32_t shift) const noexcept {
  std::uint32_t result = 0;
  for (const Digit& digit : digits_) {
    const std::uint32_t by = shift / digit.rank_stride % digit.radix;
    result += (digit.radix - by) % digit.radix * digit.rank_stride;
  }
  return result;
}

std::uint32_t Symmetry::image_of_block(const Shape& shape,
                                       std::uint32_t block,
                                       std::uint32_t shift) const {
  if (has_free_parts(shape.collective)) return move(block, shift, &Digit::block_stride);
  if (shape.collective != Collective::all_to_all) return image(block, shift);
  return image(block / shape.ranks, shift) * shape.ranks + image(block % shape.ranks, shift);
}

bool Symmetry::divides(std::uint32_t parts) const noexcept {
  return std::ranges::all_of(digits_, [&](const Digit& digit) {
    return digit.block_stride == 0 || parts % cycle_of(digit) == 0;
  });
}

// Applies one digit after the other: adding to a digit rotates each of its cycles.
void Symmetry::fill(std::span<std::uint32_t> images, std::uint32_t shift, Stride stride) const {
  std::iota(images.begin(), images.end(), 0U);
  for (const Digit& digit : digits_) {
    const std::uint32_t by = shift / digit.rank_stride % digit.radix;
    if (by == 0 || digit.*stride == 0) continue;
    const std::size_t cycle = std::size_t{digit.radix} * (digit.*stride);
    for (std::size_t at = 0; at + cycle <= images.size(); at += cycle) {
      const auto turned = images.subspan(at, cycle);
      std::ranges::rotate(turned, turned.begin() + std::ptrdiff_t{by} * (digit.*stride));
    }
  }
}

std::optional<Symmetry> Symmetry::with_representatives(std::uint32_t ranks) const {
  std::vector<Digit> kept;
  for (Digit digit : digits_) {
    const std::uint32_t end = digit.rank_stride * digit.radix;
    if (end <= ranks) continue;  // All values of the digit are among the representatives.
    if (digit.rank_stride < ranks) {
      // Shifts by multiples of `ranks` rotate the digit only if `ranks` is a multiple of the
      // digit's stride and divides stride × radix.
      if (ranks % digit.rank_stride != 0 || end % ranks != 0) return std::nullopt;
      const std::uint32_t step = ranks / digit.rank_stride;
      digit = {digit.radix / step, ranks, digit.block_stride * step};
    }
    kept.push_back(digit);
  }
  if (kept.empty() || kept[0].rank_stride != ranks) return std::nullopt;
  return Symmetry(std::move(kept));
}

}  // namespace xylem::collectives
