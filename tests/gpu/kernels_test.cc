// SPDX-License-Identifier: Apache-2.0
//
// Compares the device kernels with the CPU's kernels, bit for bit. CUDA_DRIVER names the driver
// that launches them. The tests cover every reduction of every type, up to 128 sources, every
// alignment, calls in place, one block and many blocks, every value of the 16-bit types, and every
// pair of the 8-bit floats. With XYLEM_DEVICE_KERNELS_ALL=1, they also cover every pair of the
// 16-bit types, which takes 3 minutes of CPU time.
#include "support/cuda_ranks.h"
#include "support/sanitizer.h"
#include "unit/device_kernels_values.h"
#include "unit/kernels_types.h"
#include "xylem/base/check.h"
#include "xylem/base/clock.h"
#include "xylem/execution/device_kernels.h"
#include "xylem/execution/host_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace xylem::test {
namespace {

using execution::Compute;
using execution::ComputeWork;
using execution::kFloats;
using execution::kIntegers;
using execution::Random;
using execution::type_name;
using execution::cuda::format_of;
using execution::cuda::kDivisors;
using execution::cuda::random_element;

using Contents = std::vector<std::byte>;
constexpr std::chrono::seconds kLimit{100};
constexpr std::size_t kVector = 16;  ///< The bytes that kernels read at once.

/// A device that runs work in the order in which it is enqueued.
class Device {
 public:
  explicit Device(std::size_t bytes)
      : ranks_(1, bytes), compute_(ranks_.of_rank(0).front().compute) {}

  std::byte* allocate(std::size_t bytes) { return memory().allocate(bytes); }
  std::byte* allocate(const Contents& contents) {
    std::byte* const place = allocate(contents.size());
    memory().write(place, contents.data(), contents.size());
    return place;
  }
  Contents read(const std::byte* place, std::size_t bytes) {
    Contents contents(bytes);
    memory().read(contents.data(), place, bytes);
    return contents;
  }
  void write(std::byte* place, const Contents& contents) {
    memory().write(place, contents.data(), contents.size());
  }

  void copy(std::byte* target, const void* source, std::size_t bytes) {
    ComputeWork work;
    work.bytes = bytes;
    std::array<const void*, 1> sources = {source};
    enqueue(work, target, sources);
  }
  void reduce(RedOp op,
              DataType type,
              std::byte* target,
              std::vector<const void*> sources,
              std::size_t count,
              std::uint32_t divisor) {
    ComputeWork work;
    work.kind = ComputeWork::Kind::reduce;
    work.element_bytes = static_cast<std::uint32_t>(size_of(type));
    work.bytes = count * size_of(type);
    work.kernel = execution::device_reduce_kernel(op, type);
    work.finish = {divisor};
    enqueue(work, target, sources);
  }
  void scale(
      DataType type, std::byte* target, const void* source, std::size_t count, double factor) {
    ComputeWork work;
    work.kind = ComputeWork::Kind::scale;
    work.element_bytes = static_cast<std::uint32_t>(size_of(type));
    work.bytes = count * size_of(type);
    work.kernel = execution::device_scale_kernel(type);
    work.factor = factor;
    std::array<const void*, 1> sources = {source};
    enqueue(work, target, sources);
  }
  /// Waits until all work has completed.
  void wait() {
    const auto end = Clock::now() + kLimit;
    while (!compute_->has_completed(last_)) {
      ASSERT_LT(Clock::now(), end) << "the device does not finish";
      std::this_thread::yield();
    }
    const Status health = compute_->health();
    ASSERT_TRUE(health) << health.to_string();
  }

 private:
  CudaMemory& memory() { return ranks_.memory(0); }
  void enqueue(ComputeWork& work, std::byte* target, std::span<const void*> sources) {
    work.target = target;
    work.sources = sources;
    last_ = compute_->enqueue(0, work, {});
  }

  CudaRanks ranks_;
  std::shared_ptr<Compute> compute_;
  execution::Ticket last_;
};

/// kBegins: the largest index at which a source begins. kMostElements: the largest number of
/// elements of a source.
constexpr std::size_t kBegins = 128, kMostElements = 1024;

/// Many launches that write to one output on the device. The same calls of the CPU's kernels write
/// to another output. At the end the two outputs are compared, including the bytes between the
/// results.
class Launches {
 public:
  explicit Launches(DataType type)
      : type_(type), size_(size_of(type)), pool_((kBegins + kMostElements) * size_) {
    for (std::size_t i = 0; i < pool_.size() / size_; ++i) {
      const std::uint64_t bits = random_element(type, random_);
      std::memcpy(pool_.data() + i * size_, &bits, size_);
    }
    pool_on_device_ = device_.allocate(pool_);
    output_ = device_.allocate(kOutput);
    begin();
  }

  /// Reduces elements of the pool. They begin `shift` elements after a vector boundary. If `alike`
  /// is false, each source begins at another shift.
  void reduce(RedOp op, std::size_t sources, std::size_t count, std::size_t shift, bool alike) {
    const std::size_t lanes = kVector / size_;
    const std::uint32_t divisor =
        op == RedOp::avg ? kDivisors[random_() % std::size(kDivisors)] : 1;
    Result& result = add(count, shift,
                         std::string(name(op)) + ", " + std::to_string(sources) + " sources, " +
                             (alike ? "alike" : "unlike") + ", divisor " + std::to_string(divisor));
    std::vector<const void*> here, there;
    for (std::size_t k = 0; k < sources; ++k) {
      const std::size_t begin =
          alike ? random_() % (kBegins / lanes) * lanes + shift : random_() % kBegins;
      here.push_back(pool_.data() + begin * size_);
      there.push_back(pool_on_device_ + begin * size_);
    }
    const std::size_t in_place = random_() % (sources + 1);
    if (in_place < sources) {
      std::memcpy(target(result), here[in_place], count * size_);
      if (count > 0) device_.copy(output_ + result.begin, there[in_place], count * size_);
      here[in_place] = target(result);
      there[in_place] = output_ + result.begin;
    }
    execution::reduce_kernel(op, type_)(target(result), here.data(), sources, count, {divisor});
    device_.reduce(op, type_, output_ + result.begin, there, count, divisor);
  }

  void scale(double factor, std::size_t count, std::size_t shift) {
    const Result& result = add(count, shift, "scaled by " + std::to_string(factor));
    execution::scale_kernel(type_)(target(result), pool_.data() + shift * size_, count, factor);
    device_.scale(type_, output_ + result.begin, pool_on_device_ + shift * size_, count, factor);
  }

  /// Compares all results so far, and starts with an empty output.
  void check() {
    ASSERT_NO_FATAL_FAILURE(device_.wait());
    const Contents got = device_.read(output_, used_);
    const auto wrong = std::ranges::mismatch(got, std::span(expected_).first(used_)).in1;
    if (wrong == got.end()) return begin();
    const auto at = static_cast<std::size_t>(wrong - got.begin());
    const auto after =
        std::ranges::upper_bound(results_, at, {}, [](const Result& r) { return r.begin; });
    ASSERT_NE(after, results_.begin()) << "before the first result";
    const Result& result = *(after - 1);
    FAIL() << name(type_) << ", " << result.what << ", " << result.count << " elements at "
           << result.begin << ": element " << (at - result.begin) / size_ << " differs";
  }

 private:
  static constexpr std::size_t kOutput = std::size_t{4} << 20;

  struct Result {
    std::size_t begin = 0, count = 0;
    std::string what;
  };

  void begin() {
    expected_.assign(kOutput, std::byte{0x5a});
    device_.write(output_, expected_);
    used_ = 0;
    results_.clear();
  }
  /// Adds room for a result, with untouched bytes before and after it.
  Result& add(std::size_t count, std::size_t shift, std::string what) {
    const std::size_t begin = used_ + kVector + shift * size_;
    used_ = (begin + count * size_ + 2 * kVector - 1) / kVector * kVector;
    XYLEM_CHECK(used_ <= kOutput, used_);
    return results_.emplace_back(Result{begin, count, std::move(what)});
  }
  std::byte* target(const Result& result) { return expected_.data() + result.begin; }

  const DataType type_;
  const std::size_t size_;
  Random random_{20240229};
  Contents pool_, expected_;
  Device device_{std::size_t{8} << 20};
  std::byte* pool_on_device_ = nullptr;
  std::byte* output_ = nullptr;
  std::size_t used_ = 0;
  std::vector<Result> results_;
};

class CudaKernel : public testing::TestWithParam<DataType> {};

TEST_P(CudaKernel, EqualsTheCpuKernelBitForBit) {
  Launches launches(GetParam());
  std::vector<std::size_t> counts = {64, 100, 255, 1000};
  for (std::size_t count = 0; count <= 40; ++count) counts.push_back(count);
  for (std::size_t i = 0; i < kRedOpCount; ++i) {
    const auto op = static_cast<RedOp>(i);
    if (!check_reduction(op, GetParam()).is_ok()) continue;
    for (const std::size_t sources : {1, 2, 3, 8, 128}) {
      if (kHasSanitizer && sources != 3) continue;
      for (const std::size_t count : counts) {
        for (std::size_t shift = 0; shift < kVector / size_of(GetParam()); ++shift) {
          launches.reduce(op, sources, count, shift, true);
          launches.reduce(op, sources, count, shift, false);
        }
      }
      ASSERT_NO_FATAL_FAILURE(launches.check());
    }
  }
}

class CudaScale : public CudaKernel {};

TEST_P(CudaScale, EqualsTheCpuKernelBitForBit) {
  Launches launches(GetParam());
  for (const double factor : {0.1, -3.0, 1.0 / 3.0, 0.0, 1e-40, 1e300}) {
    for (const std::size_t count : {0, 1, 7, 40, 1000}) {
      for (std::size_t shift = 0; shift < kVector / size_of(GetParam()); ++shift) {
        launches.scale(factor, count, shift);
      }
    }
  }
  ASSERT_NO_FATAL_FAILURE(launches.check());
}

INSTANTIATE_TEST_SUITE_P(Floats, CudaKernel, testing::ValuesIn(kFloats), type_name);
INSTANTIATE_TEST_SUITE_P(Integers, CudaKernel, testing::ValuesIn(kIntegers), type_name);
INSTANTIATE_TEST_SUITE_P(Boolean, CudaKernel, testing::Values(DataType::boolean), type_name);
INSTANTIATE_TEST_SUITE_P(Floats, CudaScale, testing::ValuesIn(kFloats), type_name);

/// Returns the CPU's result. All cores compute it.
Contents reduced(RedOp op,
                 DataType type,
                 const std::vector<const std::byte*>& sources,
                 std::size_t count,
                 std::uint32_t divisor) {
  const std::size_t size = size_of(type);
  Contents result(count * size);
  const std::size_t parts = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  for (std::size_t part = 0; part < parts; ++part) {
    threads.emplace_back([&, first = count * part / parts, last = count * (part + 1) / parts] {
      std::vector<const void*> its_sources;
      for (const std::byte* source : sources) its_sources.push_back(source + first * size);
      execution::reduce_kernel(op, type)(result.data() + first * size, its_sources.data(),
                                         its_sources.size(), last - first, {divisor});
    });
  }
  for (std::thread& thread : threads) thread.join();
  return result;
}

class ManyElements : public testing::TestWithParam<std::pair<RedOp, DataType>> {};

// There are more elements than all blocks of a launch read at once.
TEST_P(ManyElements, AreReducedByManyBlocks) {
  const auto [op, type] = GetParam();
  constexpr std::size_t kMost = std::size_t{24} << 20, kSources = 3;
  Device device(5 * kMost);
  const std::size_t bytes = is_stand_in() ? kMost / 12 : kMost;  // The stand-in has few blocks.
  const std::size_t size = size_of(type), count = bytes / size - 5;
  Random random(7);
  Contents pool(bytes + kSources * size);
  for (std::size_t i = 0; i + size <= pool.size(); i += size) {
    const std::uint64_t bits = random_element(type, random);
    std::memcpy(pool.data() + i, &bits, size);
  }
  std::byte* const there = device.allocate(pool);
  std::byte* const output = device.allocate(bytes);
  std::vector<const std::byte*> sources;
  std::vector<const void*> on_device;
  for (std::size_t k = 0; k < kSources; ++k) {
    sources.push_back(pool.data() + k * size);
    on_device.push_back(there + k * size);
  }
  for (const bool alike : {false, true}) {
    if (alike) {
      std::ranges::fill(sources, pool.data());
      std::ranges::fill(on_device, there);
    }
    device.reduce(op, type, output, on_device, count, 1);
    const Contents expected = reduced(op, type, sources, count, 1);
    ASSERT_NO_FATAL_FAILURE(device.wait());
    ASSERT_TRUE(device.read(output, expected.size()) == expected) << (alike ? "alike" : "unlike");
  }
}

INSTANTIATE_TEST_SUITE_P(Of,
                         ManyElements,
                         testing::Values(std::pair(RedOp::sum, DataType::float32),
                                         std::pair(RedOp::sum, DataType::bfloat16),
                                         std::pair(RedOp::max, DataType::float16),
                                         std::pair(RedOp::product, DataType::float64),
                                         std::pair(RedOp::sum, DataType::uint8)),
                         [](const auto& test) {
                           return std::string(name(test.param.first)) + "_" +
                                  std::string(name(test.param.second));
                         });

/// Tests with every value of a type of 8 or 16 bits.
class AllValues : public testing::TestWithParam<DataType> {
 protected:
  /// Combines every value with each of `others`, in both orders.
  void check_pairs(const std::vector<std::uint64_t>& others) {
    const std::size_t count = values * others.size();
    Contents first = all(), second(count * size);
    first.resize(count * size);
    const std::size_t row = values * size;
    for (std::size_t i = 0; i < others.size(); ++i) {
      if (i > 0) std::memcpy(first.data() + i * row, first.data(), row);
      std::byte* const place = second.data() + i * row;
      std::memcpy(place, &others[i], size);
      for (std::size_t filled = size; filled < row; filled *= 2) {
        std::memcpy(place + filled, place, filled);  // The size of a row is a power of two.
      }
    }
    device_.write(first_, first);
    device_.write(second_, second);
    for (const RedOp op : {RedOp::sum, RedOp::product, RedOp::min, RedOp::max}) {
      for (const bool is_swapped : {false, true}) {
        check(op, {is_swapped ? &second : &first, is_swapped ? &first : &second},
              {is_swapped ? second_ : first_, is_swapped ? first_ : second_}, count, 1);
        if (HasFatalFailure()) return;
      }
    }
  }
  /// Compares the averages of single values.
  void check_divisors() {
    const Contents each = all();
    device_.write(first_, each);
    for (const std::uint32_t divisor : kDivisors) {
      ASSERT_NO_FATAL_FAILURE(check(RedOp::avg, {&each}, {first_}, values, divisor));
    }
  }

  Contents all() const {
    Contents each(values * size);
    for (std::uint64_t value = 0; value < values; ++value) {
      std::memcpy(each.data() + value * size, &value, size);
    }
    return each;
  }

  static constexpr std::size_t kOthersAtOnce = 256;
  const std::size_t size = size_of(GetParam());
  const std::size_t values = std::size_t{1} << (8 * size);

 private:
  void check(RedOp op,
             const std::vector<const Contents*>& here,
             std::vector<const void*> there,
             std::size_t count,
             std::uint32_t divisor) {
    device_.reduce(op, GetParam(), target_, std::move(there), count, divisor);
    std::vector<const std::byte*> sources;
    for (const Contents* source : here) sources.push_back(source->data());
    const Contents expected = reduced(op, GetParam(), sources, count, divisor);
    ASSERT_NO_FATAL_FAILURE(device_.wait());
    const Contents got = device_.read(target_, expected.size());
    if (std::memcmp(got.data(), expected.data(), got.size()) == 0) return;
    const auto at =
        static_cast<std::size_t>(std::ranges::mismatch(got, expected).in1 - got.begin()) / size;
    std::uint64_t bits[2] = {};
    for (std::size_t k = 0; k < here.size(); ++k) {
      std::memcpy(&bits[k], here[k]->data() + at * size, size);
    }
    FAIL() << name(op) << " of " << name(GetParam()) << ", of the bits " << bits[0] << " and "
           << bits[1] << ", divisor " << divisor;
  }

  const std::size_t room_ = values * kOthersAtOnce * size;
  Device device_{3 * room_};
  std::byte* const first_ = device_.allocate(room_);
  std::byte* const second_ = device_.allocate(room_);
  std::byte* const target_ = device_.allocate(room_);
};

TEST_P(AllValues, AreReducedBitForBit) {
  ASSERT_NO_FATAL_FAILURE(check_divisors());
  if (size == 2) return check_pairs(format_of(GetParam())->special());
  std::vector<std::uint64_t> others(values);
  std::iota(others.begin(), others.end(), 0);
  check_pairs(others);
}

INSTANTIATE_TEST_SUITE_P(Of,
                         AllValues,
                         testing::Values(DataType::float8_e4m3,
                                         DataType::float8_e5m2,
                                         DataType::float16,
                                         DataType::bfloat16),
                         type_name);

class AllPairs : public AllValues {};

TEST_P(AllPairs, AreReducedBitForBit) {
  if (std::getenv("XYLEM_DEVICE_KERNELS_ALL") == nullptr) {
    GTEST_SKIP() << "takes 3 minutes of CPU time; set XYLEM_DEVICE_KERNELS_ALL=1";
  }
  std::vector<std::uint64_t> others(kOthersAtOnce);
  for (std::uint64_t first = 0; first < values; first += kOthersAtOnce) {
    std::iota(others.begin(), others.end(), first);
    ASSERT_NO_FATAL_FAILURE(check_pairs(others));
  }
}

INSTANTIATE_TEST_SUITE_P(Of,
                         AllPairs,
                         testing::Values(DataType::float16, DataType::bfloat16),
                         type_name);

}  // namespace
}  // namespace xylem::test
