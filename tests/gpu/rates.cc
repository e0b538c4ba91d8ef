// SPDX-License-Identifier: Apache-2.0
//
// Measures the rates of copies and reductions on the device, and the time of calls between ranks
// that are threads of this process. Each result is one line of JSON.
//
//   gpu_rates copies BYTES           copies within the device
//   gpu_rates kernels BYTES          the reduction kernels, launched as Xylem launches them
//   gpu_rates calls RANKS CALLS BYTES...   all_reduce of float32, CALLS calls in a turn
//
// A time is the median of several turns. The exit status is 0, or 1 if a result is wrong or a rank
// does not start.
#include "support/cuda_ranks.h"
#include "support/ranks.h"
#include "xylem/execution/device_kernels.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

namespace xylem::test {
namespace {

using execution::Compute;
using execution::ComputeWork;
using Json = nlohmann::json;

constexpr int kTurns = 7;

[[noreturn]] void end_with(const std::string& why) {
  std::fprintf(stderr, "gpu_rates: %s\n", why.c_str());
  std::_Exit(2);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

/// Device 0, and buffers in its memory.
class OneDevice {
 public:
  OneDevice(std::uint64_t bytes, std::size_t buffers)
      : ranks_(1, (bytes + 256) * buffers), compute_(ranks_.of_rank(0).front().compute) {
    for (std::size_t i = 0; i < buffers; ++i) {
      std::byte* const buffer = ranks_.memory(0).allocate(bytes);
      const std::vector<std::byte> zeros(bytes);
      ranks_.memory(0).write(buffer, zeros.data(), bytes);
      buffers_.push_back(buffer);
    }
  }
  std::byte* buffer(std::size_t number) const { return buffers_[number]; }

  /// Returns the time of one piece of work among many in sequence, in microseconds.
  double time(const ComputeWork& work, std::vector<const void*> sources) {
    const auto run = [&](int count) {
      const auto begin = Clock::now();
      execution::Ticket last;
      for (int i = 0; i < count; ++i) {
        std::vector<const void*> given = sources;
        ComputeWork one = work;
        one.sources = given;
        last = compute_->enqueue(0, one, {});
      }
      wait(last);
      return microseconds_since(begin);
    };
    run(2);
    constexpr double kTurn = 20'000;  // Microseconds.
    const int count = std::clamp(static_cast<int>(kTurn / run(1)), 1, 200);
    std::vector<double> times;
    for (int turn = 0; turn < kTurns; ++turn) times.push_back(run(count) / count);
    return median(times);
  }

 private:
  void wait(execution::Ticket last) {
    const auto end = Clock::now() + std::chrono::seconds(30);
    while (!compute_->has_completed(last)) {
      if (Clock::now() > end) end_with("the device does not finish within 30 s");
      std::this_thread::yield();
    }
    if (const Status health = compute_->health(); !health) end_with(health.to_string());
  }

  CudaRanks ranks_;
  std::shared_ptr<Compute> compute_;
  std::vector<std::byte*> buffers_;
};

/// `traffic` is the number of bytes that are read and written.
void report(const std::string& what, std::uint64_t bytes, std::uint64_t traffic, double time) {
  constexpr double kBytesPerMicrosecond = 1e3;  // 1 GB/s is 1e3 bytes per microsecond.
  std::cout << Json{{"what", what},
                    {"bytes", bytes},
                    {"us", time},
                    {"traffic_GBps", static_cast<double>(traffic) / time / kBytesPerMicrosecond}}
            << std::endl;
}

int measure_copies(std::uint64_t bytes) {
  OneDevice device(bytes, 2);
  ComputeWork work;
  work.bytes = bytes;
  work.target = device.buffer(0);
  report("copy", bytes, 2 * bytes, device.time(work, {device.buffer(1)}));
  return 0;
}

int measure_kernels(std::uint64_t bytes) {
  constexpr std::size_t kMost = 8;
  OneDevice device(bytes, kMost + 1);
  for (const DataType type :
       {DataType::float32, DataType::bfloat16, DataType::float16, DataType::float8_e4m3}) {
    for (const std::size_t count : {std::size_t{2}, kMost}) {
      ComputeWork work;
      work.kind = ComputeWork::Kind::reduce;
      work.element_bytes = static_cast<std::uint32_t>(size_of(type));
      work.bytes = bytes;
      work.target = device.buffer(kMost);
      work.kernel = execution::device_reduce_kernel(RedOp::sum, type);
      std::vector<const void*> sources;
      for (std::size_t k = 0; k < count; ++k) sources.push_back(device.buffer(k));
      report("sum of " + std::to_string(count) + " sources, " + std::string(name(type)), bytes,
             (count + 1) * bytes, device.time(work, sources));
    }
  }
  return 0;
}

// ---- calls ----

/// How a sequence of calls is made.
struct Manner {
  std::string_view name;
  Binding binding = Binding::none;  ///< Of the communicator.
  bool is_on_stream = false;
};
constexpr std::array kManners{
    Manner{"calls of bound devices, back to back", Binding::mesh, true},
    Manner{"calls of the same memory that are waited for", Binding::same_memory},
    Manner{"calls of the same memory, back to back", Binding::same_memory, true},
    Manner{"calls that are waited for, one by one"},
    Manner{"calls in the order of a stream, back to back", Binding::none, true}};

/// For each turn, the time of the slowest rank.
class Times {
 public:
  void add(std::size_t turn, double time) {
    const std::lock_guard lock(mutex_);
    slowest_[turn] = std::max(slowest_[turn], time);
  }
  double value() const { return median({slowest_.begin(), slowest_.end()}); }
  double least() const { return *std::ranges::min_element(slowest_); }
  double most() const { return *std::ranges::max_element(slowest_); }

 private:
  std::mutex mutex_;
  std::array<double, kTurns> slowest_{};  // Guarded by mutex_.
};

/// The calls of one rank.
class CallingRank {
 public:
  /// A communicator for each Binding, in the order of the values.
  using Communicators = std::array<Communicator, 3>;

  CallingRank(Communicators communicators, CudaRanks& devices, std::uint64_t bytes)
      : communicators_(std::move(communicators)),
        world_(communicators_.front()),
        driver_(devices.driver()),
        memory_(devices.memory(world_.rank())),
        device_(devices.kind(world_.rank())),
        values_(bytes / sizeof(float), static_cast<float>(world_.rank() + 1)),
        input_(memory_.allocate(bytes), values_.size(), DataType::float32, device_),
        output_(memory_.allocate(bytes), values_.size(), DataType::float32, device_) {
    memory_.write(static_cast<std::byte*>(input_.data), values_.data(), bytes);
  }

  void clear_output() {
    std::ranges::fill(values_, 0.0F);
    memory_.write(static_cast<std::byte*>(output_.data), values_.data(), output_.bytes());
  }
  /// Makes calls, and returns the time of one call, in microseconds.
  double turn(const Manner& manner, int calls) {
    expect(world_.barrier().wait());
    const Communicator& comm = communicators_.at(static_cast<std::size_t>(manner.binding));
    const auto begin = Clock::now();
    if (manner.is_on_stream) {
      const auto on_stream = comm.on({memory_.stream(), device_});
      for (int i = 0; i < calls; ++i) std::ignore = on_stream.all_reduce(input_, output_);
      const execution::cuda::CurrentContext current(driver_, memory_.context());
      expect(driver_.check(driver_.cuStreamSynchronize(memory_.stream()), "cuStreamSynchronize"));
    } else {
      for (int i = 0; i < calls; ++i) expect(comm.all_reduce(input_, output_).wait());
    }
    return microseconds_since(begin) / calls;
  }
  bool is_right() {
    memory_.read(values_.data(), static_cast<std::byte*>(output_.data), output_.bytes());
    const auto sum = static_cast<float>(world_.size() * (world_.size() + 1)) / 2;
    return std::ranges::all_of(values_, [sum](float value) { return value == sum; });
  }

 private:
  static void expect(const Status& status) {
    if (!status) end_with(status.to_string());
  }

  const Communicators communicators_;
  const Communicator& world_;
  const execution::cuda::Driver& driver_;
  CudaMemory& memory_;
  const Memory device_;
  std::vector<float> values_;
  const Buffer input_, output_;
};

/// What one call has done on average. It includes the barrier before each turn.
Json per_call(const Counters& used, std::size_t calls) {
  const auto share = [&](auto count) {
    return static_cast<double>(count) / static_cast<double>(calls);
  };
  return {{"messages", share(used.messages)},
          {"announced", share(used.announced)},
          {"turns", share(used.turns)},
          {"idle_turns", share(used.idle_turns)},
          {"pieces", share(used.pieces)},
          {"staged_bytes", share(used.staged_bytes)},
          {"mesh_copied_bytes", share(used.mesh_copied_bytes)},
          {"driver_calls", share(used.driver_calls)},
          {"driver_us", share(used.driver_time.count()) / 1e3}};
}

int measure_calls(std::uint32_t ranks, int calls, const std::vector<std::uint64_t>& sizes) {
  const std::uint64_t most = *std::ranges::max_element(sizes);
  CudaRanks devices(ranks, 2 * most + 1024);
  devices.use_default_queues();
  RankOptions options{.size = ranks, .transport = "shm"};
  options.devices = [&](std::uint32_t rank) { return devices.of_rank(rank); };
  std::vector<std::array<Times, kManners.size()>> times(sizes.size());
  std::atomic<bool> is_right = true;
  std::atomic<std::uint32_t> ended = 0;
  run_ranks(options, [&](Runtime& runtime, MemoryHub&) {
    const auto bound = runtime.world().duplicate();
    if (!bound) end_with(bound.status().to_string());
    const auto binding = bound->bind(devices.kind(runtime.rank()));
    if (!binding) end_with(binding.status().to_string());
    if (*binding != Binding::mesh) end_with("the ranks' devices form no mesh");
    const CallingRank::Communicators communicators{runtime.world(), with_same_memory(runtime),
                                                   *bound};
    for (std::size_t s = 0; s < sizes.size(); ++s) {
      devices.memory(runtime.rank()).clear();
      CallingRank rank(communicators, devices, sizes[s]);
      for (std::size_t m = 0; m < kManners.size(); ++m) {
        rank.clear_output();
        rank.turn(kManners[m], calls);
        const Counters before = runtime.counters();
        for (std::size_t turn = 0; turn < kTurns; ++turn) {
          times[s][m].add(turn, rank.turn(kManners[m], calls));
        }
        const Counters used = runtime.counters() - before;
        if (!rank.is_right()) is_right = false;
        if (!runtime.world().barrier().wait()) is_right = false;
        if (runtime.rank() != 0) continue;
        std::cout << Json{{"what", "all_reduce"},
                          {"ranks", ranks},
                          {"bytes", sizes[s]},
                          {"manner", kManners[m].name},
                          {"us", times[s][m].value()},
                          {"least_us", times[s][m].least()},
                          {"most_us", times[s][m].most()},
                          {"used", per_call(used, kTurns * static_cast<std::size_t>(calls))}}
                  << std::endl;
      }
    }
    if (!runtime.world().barrier().wait()) is_right = false;
    ++ended;
  });
  if (!is_right) std::fputs("gpu_rates: a result is wrong\n", stderr);
  return is_right && ended == ranks ? 0 : 1;
}

int usage() {
  std::fputs(
      "usage: gpu_rates copies BYTES | kernels BYTES | calls RANKS CALLS BYTES...\n"
      "BYTES is a multiple of 4, at least 4; RANKS is 1 to 64, CALLS 1 to 500.\n",
      stderr);
  return 2;
}

int run(const std::vector<std::string>& arguments) {
  std::vector<std::uint64_t> numbers;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    char* end = nullptr;
    numbers.push_back(std::strtoull(arguments[i].c_str(), &end, 10));
    if (*end != '\0' || arguments[i].empty()) return usage();
  }
  const auto are_sizes = [&](std::size_t first) {
    return numbers.size() > first &&
           std::all_of(numbers.begin() + static_cast<std::ptrdiff_t>(first), numbers.end(),
                       [](std::uint64_t bytes) { return bytes >= 4 && bytes % 4 == 0; });
  };
  const std::string what = arguments.empty() ? "" : arguments.front();
  if (what == "copies" && numbers.size() == 1 && are_sizes(0)) return measure_copies(numbers[0]);
  if (what == "kernels" && numbers.size() == 1 && are_sizes(0)) return measure_kernels(numbers[0]);
  constexpr std::uint64_t kMostRanks = 64, kMostCalls = 500;
  if (what != "calls" || !are_sizes(2)) return usage();
  if (numbers[0] < 1 || numbers[0] > kMostRanks || numbers[1] < 1 || numbers[1] > kMostCalls) {
    return usage();
  }
  return measure_calls(static_cast<std::uint32_t>(numbers[0]), static_cast<int>(numbers[1]),
                       {numbers.begin() + 2, numbers.end()});
}

}  // namespace
}  // namespace xylem::test

int main(int argc, char** argv) { return xylem::test::run({argv + 1, argv + argc}); }
