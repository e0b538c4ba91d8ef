// SPDX-License-Identifier: Apache-2.0
//
// A copy of any length and alignment copies all its bytes, and changes no other bytes.
#include "xylem/base/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <utility>
#include <vector>

namespace xylem {
namespace {

using Copy = void (*)(void*, const void*, std::size_t);
class Copies : public testing::TestWithParam<Copy> {};

TEST_P(Copies, MoveAllBytesAndNoOthers) {
  constexpr std::size_t kMost = 70'000, kMargin = 256;
  constexpr std::byte kUntouched{0xa5};
  std::vector<std::byte> source(kMost + kMargin);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 7 + 3);
  std::vector<std::byte> target(kMost + 2 * kMargin, kUntouched);
  std::vector<std::size_t> lengths;
  for (std::size_t bytes = 0; bytes <= 600; ++bytes) lengths.push_back(bytes);
  for (std::size_t bytes = 2048; bytes <= 2400; ++bytes) lengths.push_back(bytes);
  for (const std::size_t bytes : {1023, 1024, 1025, 1279, 1281, 4096, 65'536, 69'999}) {
    lengths.push_back(bytes);
  }
  for (const std::size_t bytes : lengths) {
    for (const auto& [from, to] : {std::pair{0, 0}, {1, 0}, {0, 1}, {8, 24}, {63, 65}}) {
      const auto at = target.begin() + to;
      const auto end = at + static_cast<std::ptrdiff_t>(bytes);
      const auto begin = source.begin() + from;
      GetParam()(&*at, &*begin, bytes);
      ASSERT_TRUE(std::equal(at, end, begin)) << bytes << " bytes from " << from << " to " << to;
      const auto is_untouched = [](std::byte byte) { return byte == kUntouched; };
      ASSERT_TRUE(std::all_of(target.begin(), at, is_untouched)) << bytes;
      ASSERT_TRUE(std::all_of(end, end + kMargin, is_untouched)) << bytes;
      std::fill(at, end, kUntouched);
    }
  }
}

TEST_P(Copies, OfNothingTouchNothing) { GetParam()(nullptr, nullptr, 0); }

INSTANTIATE_TEST_SUITE_P(All, Copies, testing::Values(&copy_bytes, &copy_non_temporal));

TEST(CopyToBoth, MovesAllBytesToBothAndNoOthers) {
  constexpr std::size_t kMargin = 128;
  constexpr std::byte kUntouched{0xa5};
  for (const std::size_t bytes : {0, 1, 63, 64, 4095, 4096, 4097, 8191, 12'345, 65'536}) {
    std::vector<std::byte> source(bytes + kMargin);
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 7 + 3);
    for (const auto& [from, one, other] :
         {std::tuple{0, 0, 0}, {0, 4, 0}, {0, 0, 60}, {4, 8, 24}, {63, 65, 1}}) {
      for (const int ways : {0, 1, 2, 3}) {
        std::vector<std::byte> targets[2];
        for (auto& target : targets) target.assign(bytes + 2 * kMargin, kUntouched);
        const int at[] = {one, other};
        copy_to_both({targets[0].data() + one, (ways & 1) != 0},
                     {targets[1].data() + other, (ways & 2) != 0}, source.data() + from, bytes);
        for (const int which : {0, 1}) {
          auto expected = std::vector<std::byte>(bytes + 2 * kMargin, kUntouched);
          std::copy_n(source.begin() + from, bytes, expected.begin() + at[which]);
          ASSERT_EQ(targets[which], expected)
              << bytes << " B to target " << which << ", ways " << ways;
        }
      }
    }
  }
}

}  // namespace
}  // namespace xylem
