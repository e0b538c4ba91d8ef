// SPDX-License-Identifier: Apache-2.0
//
// Measures the CPU time of the driver's functions, and the delay until a device detects a word for
// which it waits. Each result is one line of JSON. Each time is a median.
//
//   gpu_latencies
//
// Exit status: 0, or 2 if the driver failed.
#include "device.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace xylem::test::gpu {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr std::size_t kSmall = 1024;
constexpr int kCalls = 100;  // In sequence. A waiting stream accepts about 500 pairs of operations.
constexpr int kTurns = 9;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void report(std::string_view what, double time) {
  std::cout << nlohmann::json{{"what", what}, {"us", time}} << std::endl;
}

/// Polls a word, without sleep, until it has a value.
void spin_until(std::uint64_t& word, std::uint64_t value) {
  const auto end = Clock::now() + std::chrono::seconds(10);
  while (std::atomic_ref(word).load(std::memory_order_acquire) != value) {
    if (Clock::now() < end) continue;
    std::fputs("gpu_latencies: a stream does not write its word within 10 s\n", stderr);
    std::_Exit(2);
  }
}

class Latencies {
 public:
  Latencies()
      : stream_(device_.make_stream()),
        other_(device_.make_urgent_stream()),
        memory_(device_.allocate(kSmall)),
        target_(device_.allocate(kSmall)),
        flags_(device_.allocate(kSmall)),
        words_(device_.allocate_words(kWords)) {
    device_.load_kernel();
    must(driver_.cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  }

  void run() {
    measure_cost("cuLaunchKernel", [&] { launch(stream_); });
    measure_cost("cuMemcpyAsync of 1 KiB",
                 [&] { must(driver_.cuMemcpyAsync(target_, memory_, kSmall, stream_), "copy"); });
    measure_cost("cuStreamWriteValue64 of host memory", [&] { write(stream_, host(0), 1); });
    measure_cost("cuStreamWriteValue64 of device memory", [&] { write(stream_, flags_, 1); });
    measure_cost("cuStreamWaitValue64", [&] { wait(stream_, host(0), 0); });
    measure_cost("cuStreamBatchMemOp of a write and a wait", [&] { batch(stream_); });
    measure_cost("cuEventRecord", [&] { must(driver_.cuEventRecord(event_, stream_), "record"); });
    measure_cost("cuStreamWaitEvent",
                 [&] { must(driver_.cuStreamWaitEvent(other_, event_, 0), "cuStreamWaitEvent"); });
    measure_cost("cuStreamQuery", [&] { driver_.cuStreamQuery(stream_); });
    measure_cost("cuCtxPushCurrent and cuCtxPopCurrent", [&] {
      const execution::cuda::CurrentContext current(driver_, device_.context());
    });
    measure_cost("cuPointerGetAttributes of three", [&] { ask_for_pointer(); });
    measure_runs();
    measure_word("a word of the host that is written after 20 us", microseconds(20));
    measure_word("a word of the host that is written after 2 ms", microseconds(2000));
    measure_hops("from stream to stream, by words of the device", flags_, false);
    measure_hops("from stream to stream, by words of the host", host(2), false);
    measure_hops("from stream to stream, by words of the device and with a kernel", flags_, true);
    measure_event_hops();
  }

 private:
  static constexpr std::size_t kWords = 16;

  void must(CUresult result, const char* function) const { device_.must(result, function); }
  CUdeviceptr host(std::size_t word) const { return reinterpret_cast<CUdeviceptr>(words_ + word); }
  void launch(CUstream stream) const {
    must(device_.launch(target_, memory_, kSmall, stream), "cuLaunchKernel");
  }
  void write(CUstream stream, CUdeviceptr word, std::uint64_t value) const {
    must(driver_.cuStreamWriteValue64(stream, word, value, 0), "cuStreamWriteValue64");
  }
  void wait(CUstream stream, CUdeviceptr word, std::uint64_t value) const {
    must(driver_.cuStreamWaitValue64(stream, word, value, CU_STREAM_WAIT_VALUE_GEQ),
         "cuStreamWaitValue64");
  }
  void batch(CUstream stream) const {
    std::array<CUstreamBatchMemOpParams, 2> operations{};
    operations[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    operations[0].writeValue.address = host(1);
    operations[0].writeValue.value64 = 1;
    operations[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    operations[1].waitValue.address = host(1);
    operations[1].waitValue.value64 = 0;
    operations[1].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    must(driver_.cuStreamBatchMemOp(stream, operations.size(), operations.data(), 0),
         "cuStreamBatchMemOp");
  }
  void ask_for_pointer() const {
    unsigned type = 0, number = 0;
    unsigned long long id = 0;
    std::array attributes = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                             CU_POINTER_ATTRIBUTE_BUFFER_ID};
    std::array<void*, 3> values = {&type, &number, &id};
    must(driver_.cuPointerGetAttributes(attributes.size(), attributes.data(), values.data(),
                                        memory_),
         "cuPointerGetAttributes");
  }
  void synchronize() const {
    must(driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
    must(driver_.cuStreamSynchronize(other_), "cuStreamSynchronize");
  }

  /// Measures the CPU time of one call.
  void measure_cost(std::string_view name, const std::function<void()>& call) {
    std::vector<double> times;
    for (int turn = 0; turn < kTurns; ++turn) {
      const auto begin = Clock::now();
      for (int i = 0; i < kCalls; ++i) call();
      times.push_back(microseconds_since(begin) / kCalls);
      synchronize();
    }
    report(std::string("CPU: ") + std::string(name), median(times));
  }

  /// Measures the device's time for one of many kernels: without word operations between them, and
  /// with them.
  void measure_runs() {
    for (const bool has_words : {false, true}) {
      std::vector<double> times;
      for (int turn = 0; turn < kTurns; ++turn) {
        words_[4] = 0;
        wait(stream_, host(4), 1);  // Until all kernels have been enqueued.
        for (int i = 0; i < kCalls; ++i) {
          launch(stream_);
          if (has_words) batch(stream_);
        }
        const auto begin = Clock::now();
        std::atomic_ref(words_[4]).store(1, std::memory_order_release);
        must(driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
        times.push_back(microseconds_since(begin) / kCalls);
      }
      report(has_words ? "device: a kernel, a write and a wait that is over, of many"
                       : "device: a small kernel, of many",
             median(times));
    }
  }

  /// Measures the time from the CPU's write of a word until the CPU detects the word that the
  /// stream writes in response.
  void measure_word(const std::string& what, microseconds pause) {
    std::vector<double> times;
    for (std::uint64_t i = 1; i <= kCalls; ++i) {
      words_[2] = words_[3] = 0;
      wait(stream_, host(2), i);
      write(stream_, host(3), i);
      const auto end = Clock::now() + pause;
      while (Clock::now() < end) {
      }
      const auto begin = Clock::now();
      std::atomic_ref(words_[2]).store(i, std::memory_order_release);
      spin_until(words_[3], i);
      times.push_back(microseconds_since(begin));
      synchronize();
    }
    report("there and back: " + what, median(times));
  }

  /// Measures two streams that alternately wait for each other.
  void measure_hops(const std::string& what, CUdeviceptr flags, bool has_kernel) {
    std::vector<double> times;
    for (int turn = 0; turn < kTurns; ++turn) {
      clear(flags);
      for (std::uint64_t i = 1; i <= kCalls; ++i) {
        for (const bool is_first : {true, false}) {
          const CUstream stream = is_first ? stream_ : other_;
          const CUdeviceptr own = flags + (is_first ? 0 : 8), next = flags + (is_first ? 8 : 0);
          wait(stream, own, i);
          if (has_kernel) launch(stream);
          write(stream, next, is_first ? i : i + 1);
        }
      }
      const auto begin = Clock::now();
      start(flags);
      synchronize();
      times.push_back(microseconds_since(begin) / (2 * kCalls));
    }
    report("hop " + what, median(times));
  }
  void clear(CUdeviceptr flags) {
    if (flags != flags_) {
      words_[2] = words_[3] = 0;
      return;
    }
    write(stream_, flags, 0);
    write(stream_, flags + 8, 0);
    synchronize();
  }
  /// Writes 1 to the first word.
  void start(CUdeviceptr flags) {
    if (flags != flags_) return std::atomic_ref(words_[2]).store(1, std::memory_order_release);
    if (starts_ == nullptr) starts_ = device_.make_urgent_stream();
    write(starts_, flags, 1);
  }

  void measure_event_hops() {
    std::vector<double> times;
    for (int turn = 0; turn < kTurns; ++turn) {
      words_[4] = 0;
      wait(stream_, host(4), 1);
      for (int i = 0; i < kCalls; ++i) {
        for (const bool is_first : {true, false}) {
          must(driver_.cuEventRecord(event_, is_first ? stream_ : other_), "cuEventRecord");
          must(driver_.cuStreamWaitEvent(is_first ? other_ : stream_, event_, 0),
               "cuStreamWaitEvent");
        }
      }
      const auto begin = Clock::now();
      std::atomic_ref(words_[4]).store(1, std::memory_order_release);
      synchronize();
      times.push_back(microseconds_since(begin) / (2 * kCalls));
    }
    report("hop from stream to stream, by an event", median(times));
  }

  Device device_;
  const Driver& driver_ = device_.driver();
  const CUstream stream_, other_;
  CUstream starts_ = nullptr;
  const CUdeviceptr memory_, target_, flags_;
  std::uint64_t* const words_;
  CUevent event_ = nullptr;
};

}  // namespace
}  // namespace xylem::test::gpu

int main() {
  xylem::test::gpu::Latencies().run();
  std::_Exit(0);
}
