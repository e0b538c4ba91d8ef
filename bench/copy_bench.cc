// SPDX-License-Identifier: Apache-2.0
//
// Copies between two cores: one thread copies into a slot, then the other copies out of it, and so
// on with the next slot. The time is the sum of both copies; `write` and `read` are their separate
// rates. A second benchmark copies on one core between addresses with different offsets in their
// pages.
#include "xylem/base/copy.h"

#include <benchmark/benchmark.h>

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  // If this is not permitted, the scheduler chooses the cores.
  (void)sched_setaffinity(0, sizeof set, &set);
}

void by_memcpy(void* target, const void* source, std::size_t bytes) noexcept {
  std::memcpy(target, source, bytes);
}

template <auto Copy>
void hand_over(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const auto count = static_cast<std::size_t>(state.range(1));
  std::vector<std::byte> slots(bytes * count), source(bytes);
  enum class Turn { writer, reader, end };
  std::atomic<Turn> turn{Turn::writer};
  std::size_t written = 0;
  double write_seconds = 0, read_seconds = 0, last_read = 0;
  std::thread reader([&] {
    pin(1);
    std::vector<std::byte> target(bytes);
    for (std::size_t i = 0;; ++i) {
      Turn now = turn.load(std::memory_order_acquire);
      while (now == Turn::writer) now = turn.load(std::memory_order_acquire);
      if (now == Turn::end) return;
      const auto begin = Clock::now();
      xylem::copy_bytes(target.data(), slots.data() + i % count * bytes, bytes);
      last_read = seconds_since(begin);
      turn.store(Turn::writer, std::memory_order_release);
    }
  });
  pin(0);
  const auto wait = [&] {
    while (turn.load(std::memory_order_acquire) != Turn::writer) {
    }
  };
  for (auto _ : state) {
    const auto begin = Clock::now();
    Copy(slots.data() + written++ % count * bytes, source.data(), bytes);
    const double write = seconds_since(begin);
    turn.store(Turn::reader, std::memory_order_release);
    wait();
    write_seconds += write;
    read_seconds += last_read;
    state.SetIterationTime(write + last_read);
  }
  turn.store(Turn::end, std::memory_order_release);
  reader.join();
  const double all = static_cast<double>(state.iterations()) * static_cast<double>(bytes);
  state.counters["write"] = all / write_seconds;
  state.counters["read"] = all / read_seconds;
}

void slots(benchmark::internal::Benchmark* bench) {
  for (const int bytes : {4 << 10, 16 << 10, 64 << 10}) {
    for (const int memory : {0, 256 << 10, 1 << 20, 2 << 20, 8 << 20}) {
      bench->Args({bytes, std::max(1, memory / bytes)});
    }
  }
  bench->UseManualTime();
}

/// The target begins `state.range(1)` bytes farther into its page than the source.
template <auto Copy>
void from_anywhere(benchmark::State& state) {
  constexpr std::size_t kPage = 4096;
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const auto room = (bytes + 2 * kPage) / kPage * kPage;
  const std::unique_ptr<std::byte, decltype(&std::free)> memory(
      static_cast<std::byte*>(std::aligned_alloc(kPage, 2 * room)), &std::free);
  std::memset(memory.get(), 1, 2 * room);
  pin(0);
  for (auto _ : state) {
    Copy(memory.get() + room + state.range(1), memory.get(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes) * state.iterations());
}

BENCHMARK(hand_over<&by_memcpy>)->Apply(slots);
BENCHMARK(hand_over<&xylem::copy_bytes>)->Apply(slots);
BENCHMARK(hand_over<&xylem::copy_non_temporal>)->Apply(slots);
BENCHMARK(from_anywhere<&by_memcpy>)->ArgsProduct({{2 << 10, 4 << 10, 64 << 10}, {0, 4, 63, 64}});
BENCHMARK(from_anywhere<&xylem::copy_bytes>)
    ->ArgsProduct({{2 << 10, 4 << 10, 64 << 10}, {0, 4, 63, 64}});

}  // namespace

BENCHMARK_MAIN();
