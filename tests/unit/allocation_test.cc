// SPDX-License-Identifier: Apache-2.0
//
// Memory of xylem::allocate(): its ownership, and when it is freed.
#include "xylem/runtime/allocation.h"

#include "support/outcome.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

namespace xylem {
namespace {

TEST(Allocation, IsZeroedAndOnAPage) {
  const auto allocation = allocate(5000);
  ASSERT_TRUE(allocation.is_ok()) << allocation.status().to_string();
  EXPECT_EQ(allocation->bytes(), 5000U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(allocation->data()) % 4096, 0U);
  const auto* bytes = static_cast<const std::byte*>(allocation->data());
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(bytes[i], std::byte{0});
}

TEST(Allocation, HasOneOwner) {
  auto first = *allocate(100);
  void* const data = first.data();
  Allocation second = std::move(first);
  EXPECT_EQ(second.data(), data);
  Allocation third;
  EXPECT_EQ(third.data(), nullptr);
  third = std::move(second);
  EXPECT_EQ(third.data(), data);
  EXPECT_EQ(third.bytes(), 100U);
  EXPECT_EQ(third.release(), data);
  EXPECT_EQ(third.data(), nullptr);
  EXPECT_TRUE(deallocate(data).is_ok());
  EXPECT_EQ(deallocate(data).code(), Code::invalid_argument);
}

TEST(Allocation, EndsWithItsOwner) {
  void* data = nullptr;
  {
    const auto allocation = allocate(100);
    data = allocation->data();
  }
  EXPECT_EQ(deallocate(data).code(), Code::invalid_argument) << "the memory was freed before";
}

TEST(Allocation, OfNothingOrOfMoreThanThereIsIsRefused) {
  EXPECT_EQ(allocate(0).code(), Code::invalid_argument);
  EXPECT_EQ(allocate(std::uint64_t{1} << 60).code(), Code::exhausted);
}

TEST(Allocation, IsOfTheHostOrOfACudaDevice) {
  const auto allocation = allocate(100, Memory{});
  ASSERT_TRUE(allocation.is_ok()) << allocation.status().to_string();
  EXPECT_EQ(allocation->memory(), Memory{});
  for (const MemoryKind kind : {MemoryKind::rocm, MemoryKind::cuda_managed, MemoryKind::unknown}) {
    const auto refused = allocate(100, {kind, 0});
    EXPECT_THAT(refused, fails_as(Code::unsupported, "ask for host or cuda")) << name(kind);
  }
}

}  // namespace
}  // namespace xylem
