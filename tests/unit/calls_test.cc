// SPDX-License-Identifier: Apache-2.0
//
// The checks of one call's arguments on one rank. Sizes that exceed any memory are refused, even if
// they wrap around modulo 2^64.
#include "runtime/src/calls/calls.h"

#include "runtime/src/progress/work_source.h"
#include "support/outcome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace xylem::runtime {
namespace {

using collectives::Collective;
using Counts = std::vector<std::uint64_t>;

constexpr std::uint64_t kMostBytes = std::numeric_limits<std::ptrdiff_t>::max();
constexpr std::uint64_t kMostFloats = kMostBytes / sizeof(float);
constexpr std::uint64_t kWraps = std::uint64_t{1} << 62;  ///< Four times this is 0 modulo 2^64.

/// Memory for arguments of calls. It is never accessed.
std::array<float, 64> from, to;

ConstBuffer in(std::uint64_t count) { return {from.data(), count, DataType::float32, Memory{}}; }
Buffer out(std::uint64_t count) { return {to.data(), count, DataType::float32, Memory{}}; }

Result<Call> even(const Caller& caller,
                  Collective collective,
                  std::uint64_t input,
                  std::uint64_t output,
                  std::uint32_t root = 0) {
  return even_call(caller, {collective, in(input), out(output), RedOp::sum, root});
}

void expect_refused(const Result<Call>& call,
                    const std::string& value,
                    const std::string& remedy = "check the count",
                    std::uint64_t most = kMostFloats) {
  EXPECT_THAT(call, fails_as(Code::invalid_argument, value, std::to_string(most), remedy));
}

TEST(UnevenCall, SumsOfCountsDoNotWrap) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  const Caller second{1, 2};
  // Modulo 2^64, the sum of these counts is 4, the size of the buffer that contains all parts.
  const Counts counts{kMost - 3, 8};
  expect_refused(uneven_call(second, Collective::all_gather, in(8), out(4), counts, {}),
                 "counts: entry 0 (18446744073709551612)");
  expect_refused(uneven_call(second, Collective::reduce_scatter, in(4), out(8), counts, {}),
                 "counts: entry 0 (18446744073709551612)");
  const Counts small{8, 8};
  const Counts wrapping{kMost - 7, 8};
  expect_refused(all_to_all_v_call(second, in(0), wrapping, out(16), small),
                 "send_counts: entry 0 (18446744073709551608)");
  expect_refused(all_to_all_v_call(second, in(16), small, out(0), wrapping),
                 "recv_counts: entry 0 (18446744073709551608)");
}

TEST(UnevenCall, SumsOfCountsDoNotWrapInBytes) {
  const Counts counts(4, kMostFloats / 4 + 1);
  expect_refused(
      uneven_call({0, 4}, Collective::all_gather, in(counts[0]), out(4 * counts[0]), counts, {}),
      "output: " + std::to_string(4 * counts[0]) + " elements of float32");
  const Counts last{8, kMostFloats - 7};
  expect_refused(uneven_call({0, 2}, Collective::all_gather, in(8), out(16), last, {}),
                 "counts: entry 1 (" + std::to_string(last[1]) + ")");
}

TEST(UnevenCall, WhatFitsIsAccepted) {
  const auto call =
      value_of(uneven_call({1, 3}, Collective::all_gather, in(2), out(7), Counts{1, 2, 4}, {}));
  EXPECT_EQ(call.output_counts, (Counts{1, 2, 4}));
  EXPECT_TRUE(uneven_call({1, 2}, Collective::reduce_scatter, in(kMostFloats), out(0),
                          Counts{kMostFloats, 0}, {}));
}

TEST(EvenCall, ProductsWithTheRanksDoNotWrap) {
  // Modulo 2^64, the parts of all ranks together have 0 elements, the size of the buffer that
  // contains all parts.
  const auto bytes = [](const Caller& caller, Collective collective, std::uint64_t input,
                        std::uint64_t output) {
    return even_call(caller, {collective,
                              {from.data(), input, DataType::uint8},
                              {to.data(), output, DataType::uint8},
                              RedOp::sum,
                              0});
  };
  const std::string each = "4 ranks with 4611686018427387904 elements of uint8 each";
  for (const std::uint32_t rank : {0U, 3U}) {
    const Caller caller{rank, 4};
    for (const Collective collective : {Collective::all_gather, Collective::gather}) {
      SCOPED_TRACE(std::string(name(collective)) + " at rank " + std::to_string(rank));
      expect_refused(bytes(caller, collective, kWraps, 0), each, "give each rank less", kMostBytes);
    }
    for (const Collective collective : {Collective::reduce_scatter, Collective::scatter}) {
      SCOPED_TRACE(std::string(name(collective)) + " at rank " + std::to_string(rank));
      expect_refused(bytes(caller, collective, 0, kWraps), each, "give each rank less", kMostBytes);
    }
  }
  // The part of one rank fits into memory. All parts together would fit if elements were one byte
  // long.
  expect_refused(even({0, 2}, Collective::all_gather, kMostFloats, 0),
                 "2 ranks with " + std::to_string(kMostFloats) + " elements of float32 each",
                 "give each rank less");
}

TEST(EvenCall, NoBufferIsLargerThanMemory) {
  const Caller caller{0, 4};
  for (const std::uint64_t count : {kMostFloats + 1, kWraps, 4 * kWraps - 1}) {
    const std::string value = std::to_string(count) + " elements of float32";
    for (const Collective collective :
         {Collective::all_reduce, Collective::reduce, Collective::broadcast, Collective::all_gather,
          Collective::reduce_scatter, Collective::all_to_all, Collective::gather,
          Collective::scatter}) {
      SCOPED_TRACE(std::string(name(collective)));
      expect_refused(even(caller, collective, count, count), value);
    }
    expect_refused(check_send(caller, in(count), 1), value);
    expect_refused(check_recv(caller, out(count), 1), value);
  }
}

TEST(Message, IsNotLargerThanATransportCounts) {
  constexpr std::uint64_t kMost = (std::uint64_t{1} << 38) - 1;  // Elements of 4 bytes.
  EXPECT_TRUE(check_send({0, 4}, in(kMost), 1));
  const auto refused = check_send({0, 4}, in(kMost + 1), 1);
  EXPECT_THAT(refused,
              fails_as(Code::invalid_argument, std::to_string(kMost + 1), "send them in parts"));
  EXPECT_TRUE(check_recv({0, 4}, out(kMost + 1), 1))
      << "a receive may have room for more than the message";
}

TEST(EvenCall, WhatFitsIsAccepted) {
  for (const Collective collective : {Collective::all_gather, Collective::gather}) {
    const auto call = value_of(even({1, 4}, collective, 16, 64, 1));
    EXPECT_EQ(call.count, 16U);
  }
  for (const Collective collective : {Collective::reduce_scatter, Collective::scatter}) {
    const auto call = value_of(even({1, 4}, collective, 64, 16, 1));
    EXPECT_EQ(call.count, 16U);
  }
  const auto call = value_of(even({1, 4}, Collective::all_to_all, 64, 64));
  EXPECT_EQ(call.count, 16U);
  EXPECT_TRUE(even({0, 4}, Collective::barrier, 0, 0));
}

TEST(EvenCall, RefusesWhatIsNoReduction) {
  const auto none = static_cast<RedOp>(42);
  const auto expect_no_reduction = [](const Result<Call>& call) {
    EXPECT_THAT(call, fails_as(Code::invalid_argument, "42 is not a RedOp"));
  };
  expect_no_reduction(even_call({0, 1}, {Collective::all_reduce, in(4), out(4), none, 0}));
  expect_no_reduction(even_call({0, 1}, {Collective::reduce, in(4), out(4), none, 0}));
  expect_no_reduction(even_call({0, 1}, {Collective::reduce_scatter, in(4), out(4), none, 0}));
  expect_no_reduction(
      uneven_call({0, 1}, Collective::reduce_scatter, in(4), out(4), Counts{4}, none));
  EXPECT_TRUE(even_call({0, 1}, {Collective::all_gather, in(4), out(4), none, 0}))
      << "an operation that does not reduce ignores the reduction";
}

TEST(EvenCall, OnlyBuffersThatTheRankHasAreChecked) {
  const ConstBuffer nothing(nullptr, kWraps, static_cast<DataType>(99));
  EXPECT_TRUE(even_call({1, 2}, {Collective::broadcast, nothing, out(4), {}, 0}));
  EXPECT_TRUE(even_call({1, 2}, {Collective::scatter, nothing, out(4), {}, 0}));
  EXPECT_EQ(even_call({0, 2}, {Collective::scatter, nothing, out(4), {}, 0}).code(),
            Code::invalid_argument);
}

// A call is compared quickly with an earlier call. Arguments that pass this comparison must also
// pass all checks.
TEST(EvenCall, ArgumentsLikeRightOnesAreRight) {
  std::vector<std::byte> memory(4096);
  const std::array<std::size_t, 4> counts{1, 2, 4, 8}, offsets{0, 1, 2, 4};
  const auto all = {Collective::all_reduce,     Collective::reduce,     Collective::broadcast,
                    Collective::all_gather,     Collective::gather,     Collective::scatter,
                    Collective::reduce_scatter, Collective::all_to_all, Collective::barrier};
  const Caller caller{1, 2};
  std::size_t liked = 0, in_place = 0;
  const auto arguments_of = [&](Collective collective, std::size_t in_count, std::size_t out_count,
                                std::size_t in_at, std::size_t out_at, DataType type,
                                std::uint32_t root) {
    return EvenArguments{collective,
                         {memory.data() + in_at, in_count, type, Memory{}},
                         {memory.data() + out_at, out_count, type, Memory{}},
                         RedOp::sum,
                         root};
  };
  for (const Collective collective : all) {
    for (const std::size_t in_count : counts) {
      for (const std::size_t out_count : counts) {
        // The buffers do not overlap, so the call is valid if its counts are valid.
        const auto first =
            arguments_of(collective, in_count, out_count, 0, 2048, DataType::uint8, 0);
        const auto call = even_call(caller, first);
        if (!call) continue;
        const KnownArguments known(caller, *call);
        EXPECT_TRUE(known.match(first)) << name(collective) << in_count << ' ' << out_count;
        for (const std::size_t count : counts) {
          for (const std::size_t in_at : offsets) {
            for (const std::size_t out_at : offsets) {
              for (const DataType type : {DataType::uint8, DataType::int32}) {
                for (const std::uint32_t root : {0U, 1U}) {
                  const auto asked =
                      arguments_of(collective, count, out_count, in_at, out_at, type, root);
                  if (!known.match(asked)) continue;
                  ++liked;
                  const auto checked = even_call(caller, asked);
                  ASSERT_TRUE(checked) << name(collective) << ": " << checked.status().to_string();
                  EXPECT_EQ(checked->count, call->count);
                  EXPECT_EQ(checked->type, call->type);
                  EXPECT_EQ(checked->root, call->root);
                  in_place += in_at == out_at ? 1U : 0U;
                }
              }
            }
          }
        }
        auto other = first;
        other.input.memory.kind = MemoryKind::cuda;
        other.output.memory.kind = MemoryKind::cuda;
        EXPECT_EQ(known.match(other), collective == Collective::barrier);
        other = first;
        other.input.data = other.output.data = nullptr;
        EXPECT_EQ(known.match(other), collective == Collective::barrier);
      }
    }
  }
  EXPECT_GT(liked, 100U);
  EXPECT_GT(in_place, 10U);
}

TEST(CallOnStream, NeedsADeviceAndItsStream) {
  WorkSources sources;
  const ComputeDevices none(sources, {}, {});
  const Stream of_host{nullptr, Memory{}}, of_unknown{nullptr, kFoundByCall}, of_device{};
  const auto refused = [](const Caller& caller, const Stream& stream) {
    Call call = even_call(caller, {Collective::all_reduce, in(4), out(4), RedOp::sum, 0}).value();
    return put_on_stream(call, caller, stream, /*holds_stream=*/true);
  };
  for (const Stream& stream : {of_host, of_unknown}) {
    EXPECT_THAT(refused({0, 1, &none}, stream),
                fails_as(Code::invalid_argument, "name the device"));
  }
  EXPECT_EQ(refused({0, 1, nullptr}, of_device).code(), Code::unsupported);
  EXPECT_EQ(refused({0, 1, &none}, of_device).code(), Code::unsupported);
}

}  // namespace
}  // namespace xylem::runtime
