// SPDX-License-Identifier: Apache-2.0
//
// The loops of a two-shot all_reduce of float32 alone, on two pinned threads that act as ranks and
// pass slices through slots as shm does. In the middle of a call:
//
//   step s   my input, the other's half, slice s         --copy-->    my slot
//            the other's slot of results, slice s - 4    --copy-->    my output
//            the other's slot and my input, slice s - 2  --reduce-->  my slot, my output
//
// Outputs are written by memcpy or with non-temporal stores. In the fused form the two copies are
// one loop. bytes_per_second is a rank's buffer divided by the slower rank's time. `limit` is the
// percentage of the memory's bandwidth, as in `xylem bench` (docs/benchmarks.md), measured by
// copies between the calls.
#include "bench/bandwidth.h"
#include "xylem/base/check.h"
#include "xylem/base/copy.h"
#include "xylem/execution/host_kernels.h"

#include <benchmark/benchmark.h>

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <vector>

namespace xylem {
namespace {

using Clock = std::chrono::steady_clock;
using Copy = void (*)(void* target, const void* source, std::size_t bytes) noexcept;

constexpr std::size_t kRanks = 2;
constexpr std::size_t kSlice = (64 << 10) / sizeof(float);
constexpr std::size_t kPiece = (2 << 10) / sizeof(float);
// Number of slots of each Slots object. The Segment of a rank has two such objects: 2 MiB in all.
constexpr std::size_t kSlots = 16;
// A rank publishes slice s of the other rank's half in step s, reduces slice s of its own half in
// step s + kLag, and copies the other rank's result for slice s to its output in step s + 2 * kLag.
constexpr std::size_t kLag = 2;
// So before a rank fills a slot again, it has received a slice that the other rank published after
// it had read the slot.
static_assert(kSlots > 2 * kLag);

void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  // If this is not permitted, the scheduler chooses the cores.
  (void)sched_setaffinity(0, sizeof set, &set);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// Two threads on separate cores that do the same work at the same time.
class Pair {
 public:
  using Work = std::function<void(std::size_t rank)>;

  Pair() : second_([this] { serve(); }) { pin(0); }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  ~Pair() {
    begin(nullptr);
    second_.join();
  }

  /// The time of the slower thread in seconds.
  double run(const Work& work) {
    begin(&work);
    const double seconds = time(work, 0);
    while (ended_.load(std::memory_order_acquire) < begun_.load(std::memory_order_relaxed)) {
    }
    return std::max(seconds, seconds_of_second_);
  }

 private:
  static double time(const Work& work, std::size_t rank) {
    const auto start = Clock::now();
    work(rank);
    return std::chrono::duration<double>(Clock::now() - start).count();
  }
  void begin(const Work* work) {
    work_ = work;
    begun_.fetch_add(1, std::memory_order_release);
  }
  void serve() {
    pin(1);
    for (std::uint64_t next = 1;; ++next) {
      while (begun_.load(std::memory_order_acquire) < next) {
      }
      if (work_ == nullptr) return;
      seconds_of_second_ = time(*work_, 1);
      ended_.store(next, std::memory_order_release);
    }
  }

  const Work* work_ = nullptr;
  double seconds_of_second_ = 0;
  std::atomic<std::uint64_t> begun_{0}, ended_{0};
  std::thread second_;
};

/// Slots that one rank fills and the other reads, one after the other. Slices are numbered over all
/// calls.
class Slots {
 public:
  float* slot(std::uint64_t slice) { return slots_[slice % kSlots].data(); }
  void publish(std::uint64_t slice) { filled_.store(slice + 1, std::memory_order_release); }
  const float* await(std::uint64_t slice) const {
    while (filled_.load(std::memory_order_acquire) <= slice) {
    }
    return slots_[slice % kSlots].data();
  }

 private:
  alignas(4096) std::array<std::array<float, kSlice>, kSlots> slots_;
  alignas(4096) std::atomic<std::uint64_t> filled_{0};
};

struct Segment {
  Slots given, results;
};

/// Memory that is mapped as between processes, since pages of shared memory may have a different
/// size from those of private memory.
class Segments {
 public:
  Segments() {
    void* const memory =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    XYLEM_CHECK(memory != MAP_FAILED, errno);
    segments_.reset(static_cast<Segment*>(memory));
    for (std::size_t rank = 0; rank < kRanks; ++rank) new (&segments_[rank]) Segment;
  }
  Segment& operator[](std::size_t rank) { return segments_[rank]; }

 private:
  static constexpr std::size_t kBytes = kRanks * sizeof(Segment);
  struct Unmap {
    void operator()(Segment* segments) const noexcept { munmap(segments, kBytes); }
  };
  std::unique_ptr<Segment[], Unmap> segments_;
};

struct Variant {
  Copy store;  ///< Writes the output.
  bool is_fused;
};

/// The buffers of both ranks, and the calls on them.
class AllReduce {
 public:
  AllReduce(std::size_t bytes, Variant variant)
      : variant_(variant), count_(bytes / sizeof(float)), slices_(count_ / kRanks / kSlice) {
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      outputs_[rank].resize(count_);
      for (std::size_t i = 0; i < count_; ++i) inputs_[rank].push_back(value(rank, i));
    }
  }

  /// The time in seconds in which both ranks copy their input with non-temporal stores.
  double copy(Pair& pair) {
    return pair.run([this](std::size_t rank) {
      copy_non_temporal(outputs_[rank].data(), inputs_[rank].data(), count_ * sizeof(float));
    });
  }

  /// The time of one call in seconds.
  double run(Pair& pair) {
    const double seconds = pair.run([this](std::size_t rank) { take_part(rank); });
    first_ += slices_;
    return seconds;
  }

  /// Whether a call leaves the right sums in both outputs.
  bool is_right(Pair& pair) {
    for (auto& output : outputs_) std::ranges::fill(output, -1.0F);  // Never a right value.
    run(pair);
    for (std::size_t i = 0; i < count_; ++i) {
      const float sum = value(0, i) + value(1, i);
      if (outputs_[0][i] != sum || outputs_[1][i] != sum) return false;
    }
    return true;
  }

 private:
  /// Small whole numbers, whose sums are exact.
  static float value(std::size_t rank, std::size_t i) {
    return static_cast<float>((i * 7 + i / kSlice + rank * 5) % 61);
  }

  /// A slice to copy, and its destination. Both are null if there is nothing to copy.
  struct Move {
    float* to = nullptr;
    const float* from = nullptr;
  };

  void take_part(std::size_t rank) {
    const std::size_t other = 1 - rank, half = count_ / kRanks;
    Segment &own = segments_[rank], &others = segments_[other];
    const float* const mine = inputs_[rank].data() + rank * half;
    const float* const theirs = inputs_[rank].data() + other * half;
    float* const reduced = outputs_[rank].data() + rank * half;
    float* const taken = outputs_[rank].data() + other * half;
    for (std::size_t step = 0; step < slices_ + 2 * kLag; ++step) {
      Move in, out;
      if (step >= 2 * kLag) {
        const std::size_t slice = step - 2 * kLag;
        out = {taken + slice * kSlice, others.results.await(first_ + slice)};
      }
      if (step < slices_) in = {own.given.slot(first_ + step), theirs + step * kSlice};
      exchange(in, out);
      if (step < slices_) own.given.publish(first_ + step);
      if (step < kLag || step >= slices_ + kLag) continue;
      const std::size_t slice = step - kLag;
      reduce(own.results.slot(first_ + slice), reduced + slice * kSlice,
             others.given.await(first_ + slice), mine + slice * kSlice);
      own.results.publish(first_ + slice);
    }
    fence_non_temporal();
  }

  /// Copies one slice into a slot and one out of a slot.
  void exchange(const Move& in, const Move& out) const {
    constexpr std::size_t kWhole = kSlice * sizeof(float);
    if (!variant_.is_fused || in.to == nullptr || out.to == nullptr) {
      if (in.to != nullptr) std::memcpy(in.to, in.from, kWhole);
      if (out.to != nullptr) variant_.store(out.to, out.from, kWhole);
      return;
    }
    for (std::size_t at = 0; at < kSlice; at += kPiece) {
      std::memcpy(in.to + at, in.from + at, kPiece * sizeof(float));
      variant_.store(out.to + at, out.from + at, kPiece * sizeof(float));
    }
  }

  void reduce(float* slot, float* output, const float* theirs, const float* mine) const {
    for (std::size_t at = 0; at < kSlice; at += kPiece) {
      const std::array<const void*, 2> sources{theirs + at, mine + at};
      sum_(slot + at, sources.data(), sources.size(), kPiece, {});
      variant_.store(output + at, slot + at, kPiece * sizeof(float));
    }
  }

  Variant variant_;
  /// Number of elements of a rank, and number of slices in half of them.
  std::size_t count_, slices_;
  std::uint64_t first_ = 0;  ///< Number of the first slice of the next call.
  execution::ReduceKernel sum_ = execution::reduce_kernel(RedOp::sum, DataType::float32);
  std::array<std::vector<float>, kRanks> inputs_, outputs_;
  Segments segments_;
};

void by_memcpy(void* target, const void* source, std::size_t bytes) noexcept {
  std::memcpy(target, source, bytes);
}

void two_shot(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  AllReduce call(bytes,
                 {state.range(1) != 0 ? copy_piece_non_temporal : by_memcpy, state.range(2) != 0});
  Pair pair;
  if (!call.is_right(pair)) return state.SkipWithError("wrong result");
  std::vector<double> copies, calls;
  for ([[maybe_unused]] auto _ : state) {
    copies.push_back(call.copy(pair));
    calls.push_back(call.run(pair));
    state.SetIterationTime(calls.back());
  }
  if (!call.is_right(pair)) return state.SkipWithError("wrong result");
  const Bytes size{bytes}, both{kRanks * bytes};
  const GBps copied = tools::algorithm_bandwidth(both, median(std::move(copies)) * 1e6);
  const double traffic = tools::least_traffic(tools::Operation::all_reduce, kRanks, false);
  state.SetBytesProcessed(state.iterations() * state.range(0));
  state.counters["limit"] =
      tools::least_time(traffic, size, copied) / (median(std::move(calls)) * 1e6);
}

BENCHMARK(two_shot)
    ->ArgNames({"bytes", "non_temporal", "fused"})
    ->ArgsProduct({{16 << 20, 64 << 20}, {0, 1}, {0, 1}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace xylem

BENCHMARK_MAIN();
