// SPDX-License-Identifier: Apache-2.0
//
// Layouts cover every buffer exactly for all counts. All ranks compute the same size for each
// block.
#include "model/plans.h"
#include "xylem/collectives/builder.h"
#include "xylem/collectives/layout.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <vector>

namespace xylem::collectives {
namespace {

Schedule empty_schedule(const Shape& shape, std::uint32_t rank, std::uint32_t blocks = 0) {
  return Builder("test", shape, rank, blocks).take();
}

std::uint32_t chunks(const Schedule& schedule, Buffer buffer) {
  return chunk_count(schedule, schedule.rank, buffer);
}

TEST(Layout, SplitsABufferIntoAlignedPartsThatCoverIt) {
  for (const std::uint32_t parts : {1U, 2U, 3U, 5U, 8U, 64U}) {
    for (const std::uint32_t element : {1U, 2U, 4U, 8U, 3U, 12U}) {
      for (const std::uint64_t count : {0ULL, 1ULL, 7ULL, 64ULL, 1000ULL, 12345ULL, 1ULL << 30}) {
        const Schedule schedule = empty_schedule({Collective::all_reduce, 5, 0}, 2, parts);
        const Layout layout(schedule, {.count = count, .element_bytes = element});
        std::uint64_t end = 0;
        std::uint64_t largest = 0;
        for (std::uint32_t part = 0; part < parts; ++part) {
          const Extent extent = layout.extent(Buffer::output, part, 1);
          ASSERT_EQ(extent.offset, end);
          ASSERT_EQ(extent.bytes % element, 0U);
          ASSERT_TRUE(extent.bytes == 0 || extent.offset % kPartAlignment == 0);
          ASSERT_EQ(extent, layout.extent(Buffer::input, part, 1));
          end += extent.bytes;
          largest = std::max(largest, extent.bytes);
        }
        ASSERT_EQ(end, count * element) << parts << " parts of " << count;
        ASSERT_EQ(layout.bytes(Buffer::input), end);
        const std::uint64_t line = std::lcm(kPartAlignment, std::uint64_t{element});
        ASSERT_LE(largest, end / parts + line) << "parts differ by more than a line";
      }
    }
  }
}

TEST(Layout, LeavesTheLastPartsOfASmallBufferEmpty) {
  const Schedule schedule = empty_schedule({Collective::all_reduce, 4, 0}, 0, 4);
  const Layout layout(schedule, {.count = 20, .element_bytes = 4});
  EXPECT_EQ(layout.extent(Buffer::input, 0, 1), (Extent{0, 64}));
  EXPECT_EQ(layout.extent(Buffer::input, 1, 1), (Extent{64, 16}));
  EXPECT_EQ(layout.extent(Buffer::input, 2, 2), (Extent{80, 0}));
}

TEST(Layout, GivesEachBuffersSizePerCollective) {
  struct Case {
    Collective collective;
    std::uint32_t rank;
    std::uint64_t input, output;  // The sizes of the buffers, in multiples of the count.
  };
  const Case cases[] = {{Collective::all_gather, 1, 1, 4}, {Collective::gather, 2, 1, 4},
                        {Collective::gather, 1, 1, 0},     {Collective::reduce_scatter, 1, 4, 1},
                        {Collective::scatter, 2, 4, 1},    {Collective::scatter, 1, 0, 1},
                        {Collective::all_to_all, 1, 4, 4}, {Collective::reduce, 2, 1, 1},
                        {Collective::reduce, 1, 1, 0},     {Collective::broadcast, 2, 1, 1},
                        {Collective::broadcast, 1, 0, 1},  {Collective::barrier, 1, 0, 0}};
  for (const Case& c : cases) {
    const Shape shape{c.collective, 4, has_root(c.collective) ? 2U : 0U};
    const Layout layout(empty_schedule(shape, c.rank, 2), {.count = 1000, .element_bytes = 8});
    EXPECT_EQ(layout.bytes(Buffer::input), c.input * 8000)
        << name(c.collective) << " at rank " << c.rank;
    EXPECT_EQ(layout.bytes(Buffer::output), c.output * 8000)
        << name(c.collective) << " at rank " << c.rank;
  }
}

TEST(Layout, TakesUnevenCounts) {
  const std::vector<std::uint64_t> uneven = {3, 0, 5, 2};
  const Schedule gather = empty_schedule({Collective::all_gather, 4, 0}, 2);
  const Layout gathered(gather, {.output_counts = uneven, .element_bytes = 4});
  EXPECT_EQ(gathered.extent(Buffer::output, 2, 1), (Extent{12, 20}));
  EXPECT_EQ(gathered.extent(Buffer::output, 1, 1), (Extent{12, 0}));
  EXPECT_EQ(gathered.extent(Buffer::output, 0, 4), (Extent{0, 40}));
  EXPECT_EQ(gathered.bytes(Buffer::input), 20U);

  const Schedule scatter = empty_schedule({Collective::reduce_scatter, 4, 0}, 3);
  const Layout scattered(scatter, {.input_counts = uneven, .element_bytes = 2});
  EXPECT_EQ(scattered.bytes(Buffer::input), 20U);
  EXPECT_EQ(scattered.bytes(Buffer::output), 4U);

  const std::vector<std::uint64_t> incoming = {1, 0, 1, 9};
  const Schedule exchange = empty_schedule({Collective::all_to_all, 4, 0}, 1);
  const Layout exchanged(exchange,
                         {.input_counts = uneven, .output_counts = incoming, .element_bytes = 1});
  EXPECT_EQ(exchanged.bytes(Buffer::input), 10U);
  EXPECT_EQ(exchanged.extent(Buffer::output, 3, 1), (Extent{2, 9}));
}

TEST(Layout, GivesABlockTheSameSizeInEveryBufferOfEveryRank) {
  const std::vector<std::uint64_t> uneven = {3, 0, 5, 2, 7};
  for (const Planner& planner : planners()) {
    const bool by_output =
        planner.collective == Collective::all_gather || planner.collective == Collective::gather;
    const bool by_input = planner.collective == Collective::reduce_scatter ||
                          planner.collective == Collective::scatter;
    Counts counts{.count = 77, .element_bytes = 4};
    if (by_output) counts.output_counts = uneven;
    if (by_input) counts.input_counts = uneven;
    std::map<std::uint32_t, std::uint64_t> sizes;  // The size of each block, by the block's number.
    for (const Schedule& schedule : model::plan_all(planner, {planner.collective, 5, 0})) {
      const Layout layout(schedule, counts);
      for (const Buffer buffer : {Buffer::input, Buffer::output, Buffer::scratch}) {
        for (std::uint32_t chunk = 0; chunk < chunks(schedule, buffer); ++chunk) {
          const std::uint32_t block = block_of(schedule, {schedule.rank, chunk, buffer});
          const std::uint64_t bytes = layout.extent(buffer, chunk, 1).bytes;
          EXPECT_EQ(sizes.try_emplace(block, bytes).first->second, bytes)
              << name(planner.collective) << ' ' << planner.name << ", block " << block;
        }
      }
    }
  }
}

}  // namespace
}  // namespace xylem::collectives
