// SPDX-License-Identifier: Apache-2.0
//
// Commands, and the hardware queues that run them.
//
// A command starts when it is at the head of its queue and all commands in `after` have completed.
// Commands are only made to wait for commands that were issued before them. So a cycle of waits is
// impossible, and queues stall for ever only because of memory operations and host functions, as on
// real devices.
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
/// Notified when a command completes, when a device is lost or ends, and when a thread no longer
/// holds a context. Not when a command is issued: only its queue waits for that, and all others
/// would wake up in vain.
std::condition_variable& driver_changed();

/// What a running command knows. It runs without the mutex.
class Run {
 public:
  Run(Device& device, std::mt19937_64& random) : device_(device), random_(random) {}
  Device& device() const noexcept { return device_; }
  std::mt19937_64& random() const noexcept { return random_; }
  /// True if the command has to end at once, whatever it waits for.
  bool is_aborted() const noexcept;
  /// Yields at first, and later sleeps, longer with the number of tries.
  void pause(unsigned tries) const;
  /// Makes the device lost.
  void fail(CUresult result) const;

 private:
  Device& device_;
  std::mt19937_64& random_;
};

/// What is told of copies and kernels (fake_cuda_watch), or null.
std::atomic<fake_cuda_watcher>& watcher_of_commands();

/// Tells the watcher of a copy or a kernel that runs as long as this exists.
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
  std::function<void(const Run&)> run;  ///< Nothing to do if it is empty.
  std::uint64_t stream = 0;  ///< To which it was given (Stream::number), or 0: a branch of a graph.
  bool waits = false;        ///< For a word, so nobody knows for how long.
  bool is_held = false;      ///< It waits, or stands behind a command that did when it was given.
  bool runs_on_lost_device = false;
  bool is_done = false;
};
using CommandPtr = std::shared_ptr<Command>;

/// A thread that runs commands one after the other. It starts with the first command.
class Queue {
 public:
  Queue(Device& device, std::uint64_t seed, std::uint64_t delay_us);
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  /// Its device has to be ending. Called without the mutex.
  ~Queue();

  void push(CommandPtr command);
  /// The newest command; nullptr if there was none.
  const CommandPtr& last() const noexcept { return last_; }
  /// How many commands have not ended.
  std::size_t length() const noexcept { return commands_.size(); }
  /// Whether a command of another stream may hold this queue for long.
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
  /// Notified when a command is pushed, and by stop(). Never destroyed: in a forked child it still
  /// counts the worker, which is not there, and destroying it would wait for that.
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
