// SPDX-License-Identifier: Apache-2.0
#include "streams_that_wait.h"

#include "device.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace xylem::test::gpu {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kSmall = std::size_t{1} << 20;

// ---- threads beside a call that waits ----

/// Calls that block until a waiting stream has finished. The stream is the one of `waiting`.
std::vector<DriverCall> calls_that_wait(Device& device, const WaitingStream& waiting) {
  const Driver& driver = device.driver();
  const auto must = [&device](CUresult result, const char* name) { device.must(result, name); };
  const CUdeviceptr memory = device.allocate(kSmall), to_free = device.allocate(kSmall);
  const CUstream stream = waiting.stream();
  const auto pageable = std::make_shared<std::vector<std::byte>>(kSmall);
  std::uint64_t* const words = device.allocate_words(2);
  return {
      {"cuStreamSynchronize",
       [=, &driver] { must(driver.cuStreamSynchronize(stream), "cuStreamSynchronize"); }},
      {"cuMemcpyAsync to pageable memory, on that stream",
       [=, &driver] {
         must(driver.cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(pageable->data()), memory, kSmall,
                                   stream),
              "cuMemcpyAsync");
       }},
      {"cuMemcpyAsync from pageable memory, on that stream",
       [=, &driver] {
         must(driver.cuMemcpyAsync(memory, reinterpret_cast<CUdeviceptr>(pageable->data()), kSmall,
                                   stream),
              "cuMemcpyAsync");
         must(driver.cuStreamSynchronize(stream), "cuStreamSynchronize");
       }},
      {"cuMemcpyAsync from the host to the host, pinned, on that stream",
       [=, &driver] {
         must(driver.cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(words),
                                   reinterpret_cast<CUdeviceptr>(words + 1), sizeof *words, stream),
              "cuMemcpyAsync");
       }},
      {"cuLibraryLoadData and cuKernelGetFunction", [&device] { device.load_kernel(); }},
      {"the first launch of a kernel that is loaded when it is used, on another stream",
       [=, &device] {
         must(device.launch_another(memory, device.make_stream()), "cuLaunchKernel");
       }},
      {"cuMemFree", [=, &device] { must(device.blocking().cuMemFree(to_free), "cuMemFree"); }},
      {"more operations on that stream than it takes",
       [=, &driver] {
         for (int i = 0; i < 2000; ++i) {
           must(driver.cuStreamWriteValue64(stream, reinterpret_cast<CUdeviceptr>(words), 1, 0),
                "cuStreamWriteValue64");
         }
       }},
  };
}

}  // namespace

int ask_about_threads() {
  Device device;
  device.load_kernel();
  WaitingStream waiting(device);
  const StreamWork other(device, device.make_urgent_stream());
  std::ignore = other.run();
  for (const DriverCall& call : calls_that_wait(device, waiting)) {
    waiting.begin();
    const auto returning = std::make_shared<std::promise<void>>();
    const auto returned = returning->get_future();
    std::thread([call, returning, &device] {
      device.must(device.driver().cuCtxPushCurrent(device.context()), "cuCtxPushCurrent");
      call.make();
      returning->set_value();
    }).detach();
    if (returned.wait_for(milliseconds(200)) == std::future_status::ready) {
      answer("threads", call.name, "does not wait");
    } else {
      const auto text = std::make_shared<std::string>();
      const Watched watched = watch(
          device, [text, &other] { *text = other.run(); }, [&] { waiting.go_on(); });
      std::string how = watched.end == Watched::End::at_once ? *text : "another thread's calls ";
      if (watched.end == Watched::End::released) how += "WAIT with it until the stream goes on";
      if (watched.end == Watched::End::never) how += "HANG, even when the stream goes on";
      answer("threads", call.name, "waits; meanwhile: " + how);
      if (watched.end == Watched::End::never) std::_Exit(0);
    }
    waiting.go_on();
    waiting.end();
    if (returned.wait_for(seconds(5)) != std::future_status::ready) {
      answer("threads", call.name, "does NOT return when the stream goes on");
      std::_Exit(0);
    }
  }
  return 0;
}

// ---- streams that share a hardware queue ----

namespace {

/// Streams of one priority, in the order of their creation.
struct Streams {
  std::string name;
  std::vector<CUstream> all;
};

/// Gives each stream work. Returns "none", "all", or the numbers of the streams that do not finish
/// it within `limit`.
std::string those_that_stand(const Device& device, const Streams& streams, milliseconds limit) {
  const CUdeviceptr target = device.allocate(kSmall), source = device.allocate(kSmall);
  for (const CUstream stream : streams.all) {
    device.must(device.driver().cuMemcpyAsync(target, source, kSmall, stream), "cuMemcpyAsync");
    device.must(device.launch(target, source, kSmall, stream), "cuLaunchKernel");
  }
  std::string numbers;
  std::size_t count = 0;
  const auto end = Clock::now() + limit;
  for (std::size_t i = 0; i < streams.all.size(); ++i) {
    const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now());
    if (wait_for(device, streams.all[i], std::max(left, milliseconds(1))) == CUDA_SUCCESS) continue;
    numbers += (count++ == 0 ? "" : " ") + std::to_string(i);
  }
  if (count == 0) return "none";
  return count == streams.all.size() ? "all" : numbers;
}

/// Some streams wait. Others are busy for some milliseconds, and meanwhile more streams get work.
/// Reports which of the other streams do not finish, although nothing but shared queues blocks
/// them.
void ask_about_busy_queues(const Device& device, std::size_t waiting) {
  constexpr std::size_t kLarge = std::size_t{8} << 20, kMany = 24;
  const CUdeviceptr target = device.allocate(kLarge), source = device.allocate(kLarge);
  std::vector<std::unique_ptr<WaitingStream>> waits;
  Streams busy{"busy", {}}, more{"more", {}};
  for (std::size_t i = 0; i < kMany; ++i) {
    busy.all.push_back(device.make_stream());
    more.all.push_back(device.make_urgent_stream());
  }
  for (std::size_t i = 0; i < waiting; ++i) {
    waits.push_back(std::make_unique<WaitingStream>(device));
    waits.back()->begin();
  }
  for (int round = 0; round < 4; ++round) {
    for (const CUstream stream : busy.all) {
      device.must(device.launch(target, source, kLarge, stream), "cuLaunchKernel");
    }
  }
  const std::string those = those_that_stand(device, more, milliseconds(500));
  const std::string these = those_that_stand(device, busy, milliseconds(500));
  answer("queues",
         std::to_string(waiting) + " streams wait, and " + std::to_string(kMany) +
             " are busy; which of the busy ones stand still, and which of as many urgent ones?",
         these + "; " + those);
  for (const auto& one : waits) one->go_on();
  for (const auto& one : waits) one->end();
  for (const Streams* streams : {&busy, &more}) {
    for (const CUstream stream : streams->all) {
      device.must(wait_for(device, stream, seconds(10)), "cuStreamQuery");
      device.must(device.driver().cuStreamDestroy(stream), "cuStreamDestroy");
    }
  }
  for (const CUdeviceptr memory : {target, source}) {
    device.must(device.blocking().cuMemFree(memory), "cuMemFree");
  }
}

}  // namespace

int ask_about_queues() {
  constexpr int kMany = 40;
  Device device;
  device.load_kernel();
  std::vector<Streams> kinds;
  int least = 0, greatest = 0;
  device.must(device.driver().cuCtxGetStreamPriorityRange(&least, &greatest),
              "cuCtxGetStreamPriorityRange");
  for (int priority = least; priority >= greatest; --priority) {
    Streams& kind = kinds.emplace_back(Streams{"of priority " + std::to_string(priority), {}});
    for (int i = 0; i < kMany; ++i) kind.all.push_back(device.make_stream(priority));
  }
  kinds.push_back({"default stream", {CU_STREAM_LEGACY}});
  const auto ask = [&](const std::string& who, CUstream stream) {
    WaitingStream waiting(device, stream);
    for (const Streams& kind : kinds) {
      waiting.begin();
      Streams others = kind;
      // Excludes the waiting stream, since its own work comes after the wait.
      std::erase(others.all, stream);
      const std::string text =
          others.all.empty() ? "" : those_that_stand(device, others, milliseconds(200));
      waiting.go_on();
      waiting.end();
      for (const CUstream other : others.all) {
        device.must(wait_for(device, other, seconds(5)), "cuStreamQuery");
      }
      if (!text.empty()) {
        answer("queues",
               who + " waits; which of " + std::to_string(others.all.size()) + " " + kind.name +
                   " stand still?",
               text);
      }
    }
  };
  ask("the first stream", kinds.front().all.front());
  ask("the last stream of the least priority", kinds.front().all.back());
  ask("the third stream of the greatest priority", kinds[kinds.size() - 2].all[2]);
  ask("the default stream", CU_STREAM_LEGACY);
  for (const std::size_t waiting : {1, 2, 3, 4, 5, 6, 7, 8, 12}) {
    ask_about_busy_queues(device, waiting);
  }
  return 0;
}

// ---- work behind a wait ----

namespace {

constexpr std::array kKinds = {"a kernel", "a copy within the device", "a copy to the host",
                               "a copy from the host"};

/// Enqueues work of each kind on a stream.
class WorkOfKinds {
 public:
  WorkOfKinds(const Device& device, std::size_t bytes)
      : device_(device),
        bytes_(bytes),
        source_(device.allocate(bytes)),
        target_(device.allocate(bytes)),
        host_(reinterpret_cast<CUdeviceptr>(device.allocate_words(bytes / sizeof(std::uint64_t)))) {
  }

  void give(std::size_t kind, CUstream stream) const {
    const std::array targets = {target_, target_, host_, target_};
    const std::array sources = {source_, source_, source_, host_};
    device_.must(kind == 0 ? device_.launch(target_, source_, bytes_, stream)
                           : device_.driver().cuMemcpyAsync(targets.at(kind), sources.at(kind),
                                                            bytes_, stream),
                 kKinds.at(kind));
  }

 private:
  const Device& device_;
  const std::size_t bytes_;
  const CUdeviceptr source_, target_, host_;
};

}  // namespace

int ask_about_work_behind() {
  Device device;
  device.load_kernel();
  const WorkOfKinds behind(device, 4096), small(device, 4096), large(device, std::size_t{4} << 20);
  std::vector<CUstream> others;
  for (int i = 0; i < 6; ++i) others.push_back(device.make_urgent_stream());
  for (const bool is_default : {false, true}) {
    WaitingStream waiting(device, is_default ? CU_STREAM_LEGACY : device.make_stream());
    for (std::size_t after = 0; after < kKinds.size(); ++after) {
      std::string text;
      for (std::size_t kind = 0; kind < kKinds.size(); ++kind) {
        waiting.begin();
        behind.give(after, waiting.stream());
        std::size_t stand = 0;
        for (const CUstream other : others) {
          small.give(kind, other);
          large.give(kind, other);
        }
        for (const CUstream other : others) {
          if (wait_for(device, other, milliseconds(stand == 0 ? 200 : 1)) != CUDA_SUCCESS) ++stand;
        }
        if (stand > 0) {
          text += std::string(text.empty() ? "" : ", ") + kKinds.at(kind) + " (on " +
                  std::to_string(stand) + " of " + std::to_string(others.size()) + " streams)";
        }
        waiting.go_on();
        waiting.end();
        for (const CUstream other : others) {
          device.must(wait_for(device, other, seconds(5)), "cuStreamQuery");
        }
      }
      answer("behind",
             std::string(is_default ? "the default stream" : "a stream") + " waits, with " +
                 kKinds.at(after) + " behind its wait; what stands still on other streams?",
             text.empty() ? "nothing" : text);
    }
  }
  return 0;
}

// ---- room behind a wait ----

int ask_about_room() {
  Device device;
  WaitingStream waiting(device);
  std::uint64_t* const words = device.allocate_words(2);
  waiting.begin();
  constexpr int kMost = 4096;
  std::atomic<int> taken = 0;
  std::atomic<int> result = CUDA_SUCCESS;
  const auto word = reinterpret_cast<CUdeviceptr>(words);
  int taken_at_first = -1;
  const Watched watched = watch(
      device,
      [&] {
        // Like the gates of calls: a write, and a wait that is satisfied at once.
        for (int i = 0; i < kMost && result == CUDA_SUCCESS; ++i) {
          CUresult one = device.driver().cuStreamWriteValue64(waiting.stream(), word, 1, 0);
          if (one == CUDA_SUCCESS) {
            one = device.driver().cuStreamWaitValue64(waiting.stream(), word + 8, 0,
                                                      CU_STREAM_WAIT_VALUE_GEQ);
          }
          if (one == CUDA_SUCCESS) ++taken;
          result = one;
        }
      },
      [&] {
        taken_at_first = taken;
        waiting.go_on();
      });
  waiting.go_on();
  std::string text = std::to_string(taken) + " taken";
  if (taken_at_first >= 0) {
    text = std::to_string(taken_at_first) + " taken; the next call " + to_string(watched);
  } else if (result != CUDA_SUCCESS) {
    text += ", then " + device.name_of(static_cast<CUresult>(result.load()));
  } else {
    text += ", as many as were given";
  }
  answer("room", "pairs of a write and a wait behind a stream that waits", text);
  if (watched.end == Watched::End::never) std::_Exit(0);
  waiting.end();
  return 0;
}

}  // namespace xylem::test::gpu
