// SPDX-License-Identifier: Apache-2.0
//
// Device copies, device reductions and messages between hosts overlap. Four ranks on two hosts,
// with one device each, make a large all_reduce several times. The test records the begin and end
// of each copy, reduction and message. For each rank, it sums the time during which two of these
// kinds were under way at once.
//
// XYLEM_TEST_TRACE=file writes the record as JSON for chrome://tracing and Perfetto.
#include "support/cuda_ranks.h"
#include "support/forwarding_transport.h"
#include "support/ranks.h"
#include "xylem/execution/cuda.h"
#include "xylem/execution/device_kernels.h"
#include "xylem/transport/transport.h"

#include <gtest/gtest.h>

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace xylem::test {
namespace {

using transport::ConstRegion;
using transport::EndpointId;
using transport::Operation;
using transport::Posted;
using transport::Tag;

constexpr std::uint32_t kRanks = 4;
constexpr std::uint64_t kBytes = std::uint64_t{16} << 20;
constexpr int kCalls = 3;  ///< The number of recorded calls.

enum Kind : std::uint8_t { copy, reduction, message };
constexpr std::array kKinds{"copy", "reduction", "message"};

long long now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// ---- the record ----

struct Event {
  Kind kind = copy;
  std::uint32_t rank = 0;
  long long begin = 0, end = 0;  ///< Nanoseconds.
};

/// The events of all ranks, in any order. Many threads add events.
class Record {
 public:
  void add(const Event& event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(event);
  }
  std::vector<Event> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<Event> events_;  // Guarded by mutex_.
};

Record& record() {
  static Record the_record;
  return the_record;
}

/// The stand-in for the driver calls this for each command. Device numbers are equal to rank
/// numbers.
void note_command(
    int device, const char* what, std::size_t /*bytes*/, long long begin, long long end) {
  const std::string_view name = what;
  const Kind kind = name == "copy" || name.starts_with("xylem_reduce_or_") ? copy : reduction;
  record().add({kind, static_cast<std::uint32_t>(device), begin, end});
}

/// Index: a set of kinds, as bits. Value: the time during which exactly these kinds were under way
/// at a rank, in milliseconds.
using Times = std::array<double, 8>;

Times times_of(const std::vector<Event>& events, std::uint32_t rank) {
  struct Edge {
    long long at;
    Kind kind;
    int change;
  };
  std::vector<Edge> edges;
  for (const Event& event : events) {
    if (event.rank != rank) continue;
    edges.push_back({event.begin, event.kind, 1});
    edges.push_back({event.end, event.kind, -1});
  }
  std::ranges::sort(edges, {}, &Edge::at);
  Times times{};
  std::array<int, 3> under_way{};
  for (std::size_t i = 0; i < edges.size(); ++i) {
    if (i > 0) {
      unsigned set = 0;
      for (unsigned kind = 0; kind < 3; ++kind) set |= under_way[kind] > 0 ? 1U << kind : 0U;
      for (unsigned part = 1; part < times.size(); ++part) {
        if ((set & part) == part) times[part] += static_cast<double>(edges[i].at - edges[i - 1].at);
      }
    }
    under_way[edges[i].kind] += edges[i].change;
  }
  for (double& time : times) time /= 1e6;
  return times;
}

void write_trace(const std::vector<Event>& events, const char* path) {
  std::ofstream file(path);
  file << std::fixed << std::setprecision(3) << "[";
  const char* separator = "";
  for (const Event& event : events) {
    file << separator << R"({"ph": "X", "name": ")" << kKinds[event.kind] << R"(", "pid": )"
         << event.rank << R"(, "tid": )" << int{event.kind} << R"(, "ts": )"
         << static_cast<double>(event.begin) / 1e3 << R"(, "dur": )"
         << static_cast<double>(event.end - event.begin) / 1e3 << "}";
    separator = ",\n";
  }
  file << "]\n";
}

// ---- messages ----

/// A TCP transport that records the begin and end of each message that it sends.
class RecordedTcp final : public transport::testing::ForwardingTransport {
 public:
  RecordedTcp(std::uint32_t rank, std::unique_ptr<transport::Transport> tcp)
      : ForwardingTransport(std::move(tcp)), rank_(rank) {}

  Posted send(EndpointId to, Tag tag, ConstRegion source, Operation& operation) noexcept override {
    const long long begin = now();
    auto* const done = std::exchange(operation.done, &RecordedTcp::note_sent);
    {
      const std::lock_guard lock(mutex());
      sent()[&operation] = {rank_, begin, done};
    }
    const Posted posted = below().send(to, tag, source, operation);
    if (posted == Posted::done) {
      operation.done = done;
      finish(operation);
    }
    return posted;
  }

 private:
  struct Sent {
    std::uint32_t rank = 0;
    long long begin = 0;
    void (*done)(Operation& self) noexcept = nullptr;
  };
  static std::mutex& mutex() {
    static std::mutex the_mutex;
    return the_mutex;
  }
  static std::map<Operation*, Sent>& sent() {
    static std::map<Operation*, Sent> the_sent;
    return the_sent;
  }
  static Sent finish(Operation& operation) noexcept {
    Sent one;
    {
      const std::lock_guard lock(mutex());
      const auto found = sent().find(&operation);
      one = found->second;
      sent().erase(found);
    }
    record().add({message, one.rank, one.begin, now()});
    return one;
  }
  static void note_sent(Operation& operation) noexcept {
    operation.done = finish(operation).done;
    operation.done(operation);
  }

  const std::uint32_t rank_;
};

// ---- the test ----

/// The stand-in calls `watcher` for each command. Returns false with the driver of a GPU.
bool watch(void (*watcher)(int, const char*, std::size_t, long long, long long)) {
  const char* const name = std::getenv("CUDA_DRIVER");
  void* const driver = ::dlopen(name == nullptr ? "libcuda.so.1" : name, RTLD_NOW | RTLD_NOLOAD);
  void* const found = driver == nullptr ? nullptr : ::dlsym(driver, "fake_cuda_watch");
  if (found != nullptr) reinterpret_cast<void (*)(decltype(watcher))>(found)(watcher);
  return found != nullptr;
}

std::vector<runtime::ComputeDevice> device_of(const CudaRanks& devices, std::uint32_t rank) {
  execution::CudaOptions options;
  options.device = devices.kind(rank).device;
  options.kernel_names = execution::device_kernel_names();
  if (const char* const name = std::getenv("CUDA_DRIVER")) options.driver = name;
  return {{devices.kind(rank), execution::make_cuda_compute(options).value()}};
}

TEST(CudaOverlap, OfCopiesReductionsAndMessages) {
  CudaRanks devices(kRanks, 2 * kBytes);
  if (!watch(&note_command)) GTEST_SKIP() << "a GPU's driver does not tell when its commands run";
  RankOptions options{.size = kRanks, .transport = "auto", .hosts = {0, 0, 1, 1}};
  // With this algorithm, all ranks send to the other host.
  options.environment["XYLEM_ALGORITHM"] = "hierarchical_ring";
  options.devices = [&](std::uint32_t rank) { return device_of(devices, rank); };
  options.adjust_wires = [](std::uint32_t rank, std::vector<runtime::WireKind>& kinds) {
    kinds.back().make = [rank, make = kinds.back().make](
                            std::uint32_t peers) -> Result<std::unique_ptr<transport::Transport>> {
      XYLEM_TRY(auto tcp, make(peers));
      tcp = std::make_unique<RecordedTcp>(rank, std::move(tcp));
      return tcp;
    };
  };
  std::vector<Event> events;
  run_ranks(options, [&](const Communicator& world) {
    CudaMemory& memory = devices.memory(world.rank());
    constexpr std::uint64_t kCount = kBytes / sizeof(float);
    const std::vector<float> ones(kCount, static_cast<float>(1 + world.rank()));
    const Memory kind = devices.kind(world.rank());
    const Buffer input(memory.allocate(kBytes), kCount, DataType::float32, kind);
    const Buffer output(memory.allocate(kBytes), kCount, DataType::float32, kind);
    memory.write(static_cast<std::byte*>(input.data), ones.data(), kBytes);
    EXPECT_TRUE(world.all_reduce(input, output).wait());  // Connects the ranks.
    EXPECT_TRUE(world.barrier().wait());
    if (world.rank() == 0) (void)record().take();
    EXPECT_TRUE(world.barrier().wait());
    for (int i = 0; i < kCalls; ++i) EXPECT_TRUE(world.all_reduce(input, output).wait());
    EXPECT_TRUE(world.barrier().wait());
    if (world.rank() == 0) events = record().take();
    EXPECT_TRUE(world.barrier().wait());
    std::vector<float> sums(kCount);
    memory.read(sums.data(), static_cast<std::byte*>(output.data), kBytes);
    EXPECT_EQ(std::ranges::count(sums, 1.0F + 2 + 3 + 4), static_cast<std::ptrdiff_t>(kCount));
    EXPECT_TRUE(world.barrier().wait());
  });
  watch(nullptr);
  if (const char* const path = std::getenv("XYLEM_TEST_TRACE")) write_trace(events, path);
  constexpr unsigned kCopy = 1U << copy, kReduction = 1U << reduction, kMessage = 1U << message;
  Times all{};
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    const Times times = times_of(events, rank);
    for (std::size_t part = 0; part < all.size(); ++part) all[part] += times[part];
    std::printf(
        "rank %u: copies %.2f ms, reductions %.2f ms, messages %.2f ms; copies with reductions "
        "%.2f ms, copies with messages %.2f ms, reductions with messages %.2f ms\n",
        rank, times[kCopy], times[kReduction], times[kMessage], times[kCopy | kReduction],
        times[kCopy | kMessage], times[kReduction | kMessage]);
    EXPECT_GT(times[kReduction | kMessage], 0);
  }
  EXPECT_GT(all[kCopy | kReduction], 0);
  EXPECT_GT(all[kCopy | kMessage], 0);
}

}  // namespace
}  // namespace xylem::test
