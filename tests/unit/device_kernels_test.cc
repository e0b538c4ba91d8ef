// SPDX-License-Identifier: Apache-2.0
//
// Compares the device kernels, compiled for the host, with the CPU's kernels, bit for bit. The
// tests cover every reduction of every type, every alignment, calls in place, several threads in
// any order, every value of the 16-bit types, and every pair of the 8-bit floats. With
// XYLEM_DEVICE_KERNELS_ALL=1 they also cover every pair of the 16-bit types, which takes 3 minutes.
#include "cuda/kernels/arguments.h"
#include "cuda/kernels/host_kernel.h"
#include "unit/device_kernels_launch.h"
#include "unit/device_kernels_values.h"
#include "unit/kernels_types.h"
#include "xylem/execution/host_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <set>
#include <span>
#include <string>
#include <vector>

#ifdef XYLEM_WITH_DEVICE_KERNELS
#include "cuda/device_kernels.h"
#endif

namespace xylem::execution::cuda {
namespace {

using execution::kFloats;
using execution::kIntegers;
using execution::Random;
using execution::type_name;

/// Memory that begins at a multiple of 16 bytes.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : vectors_(bytes / sizeof(Vector) + 2) {}

  std::byte* data() { return reinterpret_cast<std::byte*>(vectors_.data()); }
  std::size_t size() const { return vectors_.size() * sizeof(Vector); }
  bool operator==(Memory& other) { return std::memcmp(data(), other.data(), size()) == 0; }

 private:
  struct alignas(16) Vector {
    std::uint8_t bytes[16] = {};
  };
  std::vector<Vector> vectors_;
};

/// kBegins: the largest index at which a source begins. kMostElements: the largest number of
/// elements of a source.
constexpr std::size_t kBegins = 128, kMostElements = 1024;

class DeviceKernel : public testing::TestWithParam<DataType> {
 protected:
  DeviceKernel() : pool((kBegins + kMostElements) * size) {
    for (std::size_t i = 0; i < pool.size() / size; ++i) {
      const std::uint64_t bits = random_element(GetParam(), random_);
      std::memcpy(pool.data() + i * size, &bits, size);
    }
  }

  /// Reduces elements of the pool. They begin `shift` elements after a vector boundary. If `alike`
  /// is false, each source begins at another shift. Also compares the memory around the target.
  void check(RedOp op, std::size_t sources, std::size_t count, std::size_t shift, bool alike) {
    const std::size_t lanes = 16 / size;
    std::vector<const void*> addresses;
    for (std::size_t k = 0; k < sources; ++k) {
      const std::size_t begin =
          alike ? random_() % (kBegins / lanes) * lanes + shift : random_() % kBegins;
      addresses.push_back(pool.data() + begin * size);
    }
    const std::uint32_t divisor =
        op == RedOp::avg ? kDivisors[random_() % std::size(kDivisors)] : 1;
    Memory expected((shift + count) * size);
    Memory got = expected;
    std::byte* target = got.data() + shift * size;
    reduce_kernel(op, GetParam())(expected.data() + shift * size, addresses.data(), sources, count,
                                  {divisor});
    const std::size_t in_place = random_() % (sources + 1);
    if (in_place < sources) {
      std::memcpy(target, addresses[in_place], count * size);
      addresses[in_place] = target;
    }
    constexpr std::uint64_t kThreads[] = {1, 2, 7, 64};
    launch_reduce(op, GetParam(), target, addresses, count, divisor, kThreads[random_() % 4]);
    ASSERT_TRUE(got == expected) << name(op) << " of " << name(GetParam()) << ", " << sources
                                 << " sources, " << count << " elements, shift " << shift
                                 << (alike ? "" : ", unlike") << ", divisor " << divisor;
  }

  const std::size_t size = size_of(GetParam());
  Memory pool;

 private:
  Random random_{20240229};
};

TEST_P(DeviceKernel, EqualsTheCpuKernelBitForBit) {
  std::vector<std::size_t> counts = {64, 100, 255, 1000};
  for (std::size_t count = 0; count <= 40; ++count) counts.push_back(count);
  for (std::size_t i = 0; i < kRedOpCount; ++i) {
    const auto op = static_cast<RedOp>(i);
    if (!check_reduction(op, GetParam()).is_ok()) continue;
    for (const std::size_t sources : {1, 2, 3, 8, 128}) {
      for (const std::size_t count : counts) {
        for (std::size_t shift = 0; shift < 16 / size; ++shift) {
          ASSERT_NO_FATAL_FAILURE(check(op, sources, count, shift, true));
          ASSERT_NO_FATAL_FAILURE(check(op, sources, count, shift, false));
        }
      }
    }
  }
}

class DeviceScale : public DeviceKernel {};

TEST_P(DeviceScale, EqualsTheCpuKernelBitForBit) {
  const std::string kernel = "xylem_scale_" + std::string(name(GetParam()));
  for (const double factor : {0.1, -3.0, 1.0 / 3.0, 0.0, 1e-40, 1e300}) {
    for (const std::size_t count : {0, 1, 7, 40, 1000}) {
      for (std::size_t shift = 0; shift < 16 / size; ++shift) {
        const std::byte* source = pool.data() + shift * size;
        Memory expected((shift + count) * size);
        Memory got = expected;
        scale_kernel(GetParam())(expected.data() + shift * size, source, count, factor);
        std::byte* target = got.data() + shift * size;
        const bool in_place = count % 2 == 1;
        if (in_place) std::memcpy(target, source, count * size);
        const ScaleArguments arguments{device_address(target),
                                       device_address(in_place ? target : source), count, factor};
        ASSERT_NO_FATAL_FAILURE(launch(kernel, arguments, 5));
        ASSERT_TRUE(got == expected) << kernel << ' ' << factor << ' ' << count << ' ' << shift;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Floats, DeviceKernel, testing::ValuesIn(kFloats), type_name);
INSTANTIATE_TEST_SUITE_P(Integers, DeviceKernel, testing::ValuesIn(kIntegers), type_name);
INSTANTIATE_TEST_SUITE_P(Boolean, DeviceKernel, testing::Values(DataType::boolean), type_name);
INSTANTIATE_TEST_SUITE_P(Floats, DeviceScale, testing::ValuesIn(kFloats), type_name);

/// Tests with every value of a 16-bit type.
class DeviceHalf : public testing::TestWithParam<DataType> {
 protected:
  using Halves = std::vector<std::uint16_t>;

  DeviceHalf() {
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  }

  void check(RedOp op, const std::vector<const void*>& sources, std::uint32_t divisor = 1) {
    reduce_kernel(op, GetParam())(expected_.data(), sources.data(), sources.size(),
                                  expected_.size(), {divisor});
    launch_reduce(op, GetParam(), got_.data(), sources, got_.size(), divisor, 1);
    if (got_ == expected_) return;
    for (std::size_t i = 0; i < got_.size(); ++i) {
      ASSERT_EQ(got_[i], expected_[i]) << name(op) << " of " << i << ", divisor " << divisor;
    }
  }

  /// Combines every value with `other`, in both orders.
  void check_pairs(std::uint16_t other) {
    std::fill(others_.begin(), others_.end(), other);
    for (const RedOp op : {RedOp::sum, RedOp::product, RedOp::min, RedOp::max}) {
      ASSERT_NO_FATAL_FAILURE(check(op, {all.data(), others_.data()})) << " and " << other;
      ASSERT_NO_FATAL_FAILURE(check(op, {others_.data(), all.data()})) << other << " and";
    }
  }

  Halves all = Halves(1 << 16);

 private:
  Halves others_ = all, expected_ = all, got_ = all;
};

TEST_P(DeviceHalf, IsRightForEveryValue) {
  for (const std::uint32_t divisor : kDivisors) check(RedOp::avg, {all.data()}, divisor);
  for (const std::uint64_t other : format_of(GetParam())->special()) {
    ASSERT_NO_FATAL_FAILURE(check_pairs(static_cast<std::uint16_t>(other)));
  }
}

TEST_P(DeviceHalf, IsRightForEveryPair) {
  if (std::getenv("XYLEM_DEVICE_KERNELS_ALL") == nullptr) {
    GTEST_SKIP() << "takes 3 minutes; set XYLEM_DEVICE_KERNELS_ALL=1";
  }
  for (const std::uint16_t other : all) ASSERT_NO_FATAL_FAILURE(check_pairs(other));
}

INSTANTIATE_TEST_SUITE_P(Halves,
                         DeviceHalf,
                         testing::Values(DataType::float16, DataType::bfloat16),
                         type_name);

class DeviceFloat8 : public testing::TestWithParam<DataType> {};

TEST_P(DeviceFloat8, IsRightForEveryPair) {
  constexpr std::size_t kPairs = 256 * 256;
  std::vector<std::uint8_t> first(kPairs), second(kPairs), expected(kPairs), got(kPairs);
  for (std::size_t i = 0; i < kPairs; ++i) {
    first[i] = static_cast<std::uint8_t>(i / 256);
    second[i] = static_cast<std::uint8_t>(i % 256);
  }
  const std::vector<const void*> sources{first.data(), second.data()};
  for (const RedOp op : {RedOp::sum, RedOp::product, RedOp::min, RedOp::max, RedOp::avg}) {
    for (const std::uint32_t divisor : kDivisors) {
      if (op != RedOp::avg && divisor != 1) continue;
      reduce_kernel(op, GetParam())(expected.data(), sources.data(), 2, kPairs, {divisor});
      launch_reduce(op, GetParam(), got.data(), sources, kPairs, divisor, 1);
      for (std::size_t i = 0; i < kPairs; ++i) {
        ASSERT_EQ(got[i], expected[i])
            << name(op) << " of " << i / 256 << " and " << i % 256 << ", divisor " << divisor;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats,
                         DeviceFloat8,
                         testing::Values(DataType::float8_e4m3, DataType::float8_e5m2),
                         type_name);

TEST(DeviceKernels, AreThoseOfTheReductionsThatAreDefined) {
  std::set<std::string> expected;
  for (std::size_t t = 0; t < kDataTypeCount; ++t) {
    const auto type = static_cast<DataType>(t);
    for (std::size_t i = 0; i < kRedOpCount; ++i) {
      const auto op = static_cast<RedOp>(i);
      if (!check_reduction(op, type).is_ok()) continue;
      const std::string reduce = reduce_name(op, type);
      expected.insert(reduce);
      expected.insert("xylem_exchange" + reduce.substr(std::string("xylem_reduce").size()));
    }
    if (format_of(type)) expected.insert("xylem_scale_" + std::string(name(type)));
  }
  std::set<std::string> got;
  for (const HostKernel& kernel : kernels()) EXPECT_TRUE(got.insert(kernel.name).second);
  EXPECT_EQ(got, expected);
}

TEST(DeviceKernels, ReachNoAddressForNoElements) {
  launch("xylem_reduce_sum_float32", ReduceArguments{}, 3);
  launch("xylem_scale_float32", ScaleArguments{}, 3);
  launch("xylem_exchange_sum_float32", ExchangeArguments{}, 3, kMostThreads);
}

TEST(DeviceKernels, DoNothingWhenTheyAreStopped) {
  for (const std::uint32_t stop : {0U, 1U}) {
    const float source = 5;
    float sum = 0, scaled = 0;
    ReduceArguments reduction;
    reduction.target = device_address(&sum);
    reduction.count = reduction.source_count = 1;
    reduction.sources[0] = device_address(&source);
    reduction.stop = device_address(&stop);
    launch("xylem_reduce_sum_float32", reduction, 3);
    ScaleArguments scaling;
    scaling.target = device_address(&scaled);
    scaling.source = device_address(&source);
    scaling.count = 1;
    scaling.factor = 2;
    scaling.stop = device_address(&stop);
    launch("xylem_scale_float32", scaling, 3);
    EXPECT_EQ(sum, stop == 0 ? 5 : 0);
    EXPECT_EQ(scaled, stop == 0 ? 10 : 0);
  }
}

/// Arguments of a kernel that exchanges: two sources and two targets. One source and one target are
/// buffers of a peer.
struct Exchange {
  float own[2] = {1, 2}, of_peer[2] = {10, 20}, target[2] = {}, peer_target[2] = {};
  PeerCall peer_call[2];
  std::uint32_t flag = 0, ended = 0, stop = 0;
  std::uint64_t mismatch = 0;
  ExchangeArguments a;

  static std::uint64_t place(float* memory) {
    return reinterpret_cast<std::uint64_t>(device_address(memory));
  }
  void run(std::uint64_t call) {
    peer_call[1] = {place(of_peer), place(peer_target), call_of(6, 2) | (peer_call[1].call & 1U)};
    a.counts[0] = 2;
    a.slice = 1;
    a.part_count = 1;
    a.target_count = a.source_count = 2;
    a.handshake.end_count = 1;
    a.stop = device_address(&stop);
    a.peer_calls = device_address(peer_call);
    a.call = call;
    a.number = 5;
    a.mismatch = device_address(&mismatch);
    a.handshake.ended = device_address(&ended);
    a.handshake.ends[0] = device_address(&flag);
    a.operands[0] = {place(target), ExchangeArguments::kHere};
    a.operands[1] = {0, 2 * 1 + 1};
    a.operands[2] = {place(own), ExchangeArguments::kHere};
    a.operands[3] = {0, 2 * 1};
    launch("xylem_exchange_sum_float32", a, 3, kMostThreads);
  }
};

TEST(DeviceKernels, ExchangeBuffersOfPeersWhoseCallsMatch) {
  Exchange right;
  right.run(6);
  EXPECT_EQ(right.target[0], 11);
  EXPECT_EQ(right.target[1], 22);
  EXPECT_EQ(right.peer_target[0], 11);
  EXPECT_EQ(right.peer_target[1], 22);
  EXPECT_EQ(right.flag, 1U);
  EXPECT_EQ(right.ended, 0U);
  EXPECT_EQ(right.mismatch, 0U);

  Exchange wrong;
  wrong.run(8);
  EXPECT_EQ(wrong.target[0], 0);
  EXPECT_EQ(wrong.peer_target[1], 0);
  EXPECT_EQ(wrong.flag, 1U);
  EXPECT_EQ(wrong.mismatch, mismatch_of(5, 1));

  Exchange stopped;
  stopped.stop = 1;
  stopped.run(6);
  EXPECT_EQ(stopped.target[0], 0);
  EXPECT_EQ(stopped.peer_target[1], 0);
  EXPECT_EQ(stopped.flag, 0U);
}

/// An exchange that also begins the round, and waits for the peer, rank 1.
struct WholeRound : Exchange {
  std::uint32_t own_flags[kChannels][2] = {}, begin_flag = 0;
  PeerCall published;
  std::uint64_t written[2] = {};

  WholeRound(std::uint32_t first_flag, std::uint32_t second_flag) {
    own_flags[0][1] = first_flag;
    own_flags[1][1] = second_flag;
    auto& handshake = a.handshake;
    handshake.begin_count = 1;
    handshake.begins[0] = {device_address(&begin_flag),
                           device_address(&published),
                           {.input = 7, .output = 8, .call = 9}};
    for (std::uint32_t c = 0; c < kChannels; ++c) {
      handshake.awaited[c] = 1U << 1;
      handshake.own_flags[c] = device_address(own_flags[c]);
    }
    handshake.write_count = 2;
    for (std::uint64_t w = 0; w < 2; ++w)
      handshake.writes[w] = {device_address(&written[w]), w + 3};
  }
};

TEST(DeviceKernels, CarryOutAWholeRound) {
  WholeRound right(kSignalled, kSignalled);
  right.run(6);
  EXPECT_EQ(right.target[1], 22);
  EXPECT_EQ(right.peer_target[0], 11);
  EXPECT_EQ(right.begin_flag, kSignalled);
  EXPECT_EQ(right.published.input, 7U);
  EXPECT_EQ(right.published.output, 8U);
  EXPECT_EQ(right.published.call, 9U);
  EXPECT_EQ(right.flag, kSignalled);
  EXPECT_EQ(right.own_flags[0][1], kClear);
  EXPECT_EQ(right.own_flags[1][1], kClear);
  EXPECT_EQ(right.written[0], 3U);
  EXPECT_EQ(right.written[1], 4U);
  EXPECT_EQ(right.ended, 0U) << "the next launch counts from 0";
}

TEST(DeviceKernels, ComputeAndSignalNothingInARoundThatIsStopped) {
  for (const bool has_begun : {false, true}) {  // The flag is released, or the stop word is set.
    WholeRound stopped(has_begun ? kReleased : kClear, kClear);
    stopped.stop = has_begun ? 0 : 1;
    stopped.run(6);
    EXPECT_EQ(stopped.target[0], 0);
    EXPECT_EQ(stopped.peer_target[1], 0);
    EXPECT_EQ(stopped.begin_flag, has_begun ? kSignalled : kClear);
    EXPECT_EQ(stopped.flag, kClear);
    EXPECT_EQ(stopped.written[0], 3U) << "the host waits for these words";
    EXPECT_EQ(stopped.written[1], 4U);
    EXPECT_EQ(stopped.ended, 0U);
  }
  WholeRound late(kSignalled, kReleased);  // It ends while it waits for the end of the peer.
  late.run(6);
  EXPECT_EQ(late.flag, kSignalled);
  EXPECT_EQ(late.written[1], 4U);
}

TEST(DeviceKernels, ExchangeSlicesInStagingMemory) {
  Exchange staged;
  staged.peer_call[1].call = 1;
  staged.run(6);
  EXPECT_EQ(staged.target[0], 11);
  EXPECT_EQ(staged.target[1], 0) << "the second slice, in the first round";
  staged.a.begin = 1;
  staged.run(6);
  EXPECT_EQ(staged.peer_target[0], 11);
  EXPECT_EQ(staged.peer_target[1], 0) << "staging memory has room for one slice";

  Exchange late;  // In the second round, everything has been computed in the first.
  late.a.begin = 1;
  late.run(6);
  EXPECT_EQ(late.target[0], 0);
  EXPECT_EQ(late.flag, 1U);
}

TEST(DeviceKernels, ExchangeSeveralPartsInOneLaunch) {
  float from[3] = {1, 2, 3}, to[3] = {}, more[2] = {4, 5}, more_to[2] = {};
  ExchangeArguments a;
  a.part_count = 2;
  a.target_count = a.source_count = 1;
  a.counts[0] = 3;
  a.counts[1] = 1;
  a.operands[0] = {Exchange::place(to)};
  a.operands[1] = {Exchange::place(more_to)};
  a.operands[2] = {Exchange::place(from)};
  a.operands[3] = {Exchange::place(more)};
  launch("xylem_exchange_or_uint32", a, 2, kMostThreads);
  EXPECT_EQ(to[2], 3);
  EXPECT_EQ(more_to[0], 4);
  EXPECT_EQ(more_to[1], 0);
}

#ifdef XYLEM_WITH_DEVICE_KERNELS
TEST(DeviceKernels, AreInTheLibraryAsAFatBinary) {
  const std::span<const std::byte> binary = device_kernels();
  constexpr std::uint32_t kMagic = 0xBA55ED50;
  std::uint32_t magic = 0;
  ASSERT_GT(binary.size(), 4096);
  EXPECT_LT(binary.size(), 2'000'000);
  std::memcpy(&magic, binary.data(), sizeof magic);
  EXPECT_EQ(magic, kMagic);
}
#endif

}  // namespace
}  // namespace xylem::execution::cuda
