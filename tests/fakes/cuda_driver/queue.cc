// SPDX-License-Identifier: Apache-2.0
#include "fakes/cuda_driver/queue.h"

#include "fakes/cuda_driver/driver.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <new>

namespace xylem::fake_cuda {
namespace {

long long now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Starts a thread that receives no signals, so that the program's own threads receive them.
std::thread start_without_signals(std::function<void()> work) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(work));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

std::mutex& driver_mutex() {
  static constinit std::mutex mutex;
  return mutex;
}

std::condition_variable& driver_changed() {
  // Never destroyed, since a thread may wait for it when the process ends.
  alignas(std::condition_variable) static std::byte storage[sizeof(std::condition_variable)];
  static auto* changed = new (storage) std::condition_variable;
  return *changed;
}

bool Run::is_aborted() const noexcept { return device_.drops_commands(); }

void Run::pause(unsigned tries) const {
  if (tries < 16) {
    std::this_thread::yield();
    return;
  }
  const auto time = std::chrono::microseconds(std::min(20U + tries, 200U));
  std::this_thread::sleep_for(time);
}

void Run::fail(CUresult result) const {
  const std::lock_guard lock(driver_mutex());
  device_.lose(result);
}

std::atomic<fake_cuda_watcher>& watcher_of_commands() {
  static constinit std::atomic<fake_cuda_watcher> watcher{nullptr};
  return watcher;
}

Watched::Watched(const Run& run, const char* what, std::size_t bytes) noexcept
    : watcher_(watcher_of_commands()), device_(run.device().ordinal), what_(what), bytes_(bytes) {
  if (watcher_ != nullptr) begin_ = now();
}

Watched::~Watched() {
  if (watcher_ != nullptr) watcher_(device_, what_, bytes_, begin_, now());
}

Queue::Queue(Device& device, std::uint64_t seed, std::uint64_t delay_us)
    : device_(device), random_(seed), delay_us_(delay_us) {}

Queue::~Queue() {
  if (worker_.joinable()) worker_.join();
}

void Queue::push(CommandPtr command) {
  const auto is_held = [](const CommandPtr& other) { return !other->is_done && other->is_held; };
  command->is_held = command->waits || std::ranges::any_of(command->after, is_held) ||
                     std::ranges::any_of(commands_, is_held);
  last_ = command;
  commands_.push_back(std::move(command));
  if (!worker_.joinable()) worker_ = start_without_signals([this] { work(); });
  has_work_.changed.notify_one();
}

void Queue::stop() noexcept {
  is_stopping_ = true;
  has_work_.changed.notify_one();
}

bool Queue::is_held_by_others(std::uint64_t stream) const {
  return std::ranges::any_of(commands_, [&](const CommandPtr& command) {
    return command->stream != stream && command->is_held;
  });
}

bool Queue::may_start(const Command& command) const {
  return device_.drops_commands() ||
         std::all_of(command.after.begin(), command.after.end(),
                     [](const CommandPtr& other) { return other->is_done; });
}

bool Queue::is_dropped(const Command& command) const {
  return device_.is_ending || (device_.lost != CUDA_SUCCESS && !command.runs_on_lost_device);
}

void Queue::wait_delay() {
  if (delay_us_ == 0) return;
  const std::uint64_t delay = random_() % (delay_us_ + 1);
  std::this_thread::sleep_for(std::chrono::microseconds(delay));
}

void Queue::work() {
  std::unique_lock lock(driver_mutex());
  while (true) {
    has_work_.changed.wait(lock, [&] { return is_stopping_ || !commands_.empty(); });
    if (commands_.empty()) return;
    const CommandPtr command = commands_.front();
    driver_changed().wait(lock, [&] { return may_start(*command); });
    if (command->run && !is_dropped(*command)) {
      lock.unlock();
      wait_delay();
      command->run(Run(device_, random_));
      lock.lock();
    }
    command->run = nullptr;
    command->after.clear();
    command->is_done = true;
    commands_.pop_front();
    driver_changed().notify_all();
  }
}

}  // namespace xylem::fake_cuda
