// SPDX-License-Identifier: Apache-2.0
//
// Commands, and the hardware queues that run them.
//
// A command starts when it is at the head of its queue and all commands in `after` have completed.
// Commands only depend on commands that were issued before them. So dependencies have no cycles. As
// on real devices, only memory operations, host functions and kernels that wait can stall a queue
// forever.
#pragma once

#include "fakes/cuda_driver/cuda_api.h"
#include "fakes/cuda_driver/fake_cuda.h"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace xylem::fake_cuda {

struct Device;

/// Guards the state of the driver, but not the contents of memory.
std::mutex& driver_mutex();
/// Notified when a command completes, when a device is lost or its context ends, and when a thread
/// stops blocking the calls of other threads (Context::held_by). It is not notified when a command
/// is issued: only the command's queue waits for this, and other waiters would wake for nothing.
std::condition_variable& driver_changed();

/// The environment of a running command. Commands run without the mutex.
class Run {
 public:
  Run(Device& device, std::mt19937_64& random) : device_(device), random_(random) {}
  Device& device() const noexcept { return device_; }
  std::mt19937_64& random() const noexcept { return random_; }
  /// True if the command must end at once, even if it waits for something.
  bool is_aborted() const noexcept;
  /// Waits between two polls. Yields while `tries` is small, and then sleeps, longer the more
  /// tries.
  void pause(unsigned tries) const;
  /// Makes the device lost.
  void fail(CUresult result) const;

 private:
  Device& device_;
  std::mt19937_64& random_;
};

/// The function that is called after copies and kernels (fake_cuda_watch), or null.
std::atomic<fake_cuda_watcher>& watcher_of_commands();

/// Reports a copy or a kernel to the watcher. The object exists while the copy or kernel runs.
class Watched {
 public:
  Watched(const Run& run, const char* what, std::size_t bytes) noexcept;
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  ~Watched();

 private:
  const fake_cuda_watcher watcher_;
  const int device_;
  const char* const what_;
  const std::size_t bytes_;
  long long begin_ = 0;
};

struct Command {
  std::vector<std::shared_ptr<Command>> after;
  std::function<void(const Run&)> run;  ///< May be empty.
  std::uint64_t stream = 0;  ///< Stream::number of its stream; 0 for a branch of a graph.
  bool waits = false;        ///< Polls memory, so its duration is unknown.
  bool is_held = false;      ///< `waits` is true for it or for a command before it.
  bool runs_on_lost_device = false;
  bool is_done = false;
};
using CommandPtr = std::shared_ptr<Command>;

/// A thread that runs commands one after another. The first command starts the thread.
class Queue {
 public:
  Queue(Device& device, std::uint64_t seed, std::uint64_t delay_us);
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  /// The context of the device must be ending. The caller must not hold the mutex.
  ~Queue();

  void push(CommandPtr command);
  /// The newest command; nullptr if there was none.
  const CommandPtr& last() const noexcept { return last_; }
  /// The number of commands that have not ended.
  std::size_t length() const noexcept { return commands_.size(); }
  /// True if a command of another stream may block this queue for a long time.
  bool is_held_by_others(std::uint64_t stream) const;
  void stop() noexcept;

 private:
  void work();
  bool may_start(const Command& command) const;
  bool is_dropped(const Command& command) const;
  void wait_delay();

  Device& device_;
  std::mt19937_64 random_;
  std::uint64_t delay_us_;
  std::deque<CommandPtr> commands_;
  CommandPtr last_;
  bool is_stopping_ = false;
  /// Notified when a command is pushed, and by stop(). It is never destroyed: in a forked child, it
  /// still counts the worker thread as a waiter, and its destructor would wait for this thread.
  union Signal {
    Signal() : changed() {}
    Signal(const Signal&) = delete;
    Signal& operator=(const Signal&) = delete;
    ~Signal() {}
    std::condition_variable changed;
  } has_work_;
  std::thread worker_;
};

}  // namespace xylem::fake_cuda
