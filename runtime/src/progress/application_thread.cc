// SPDX-License-Identifier: Apache-2.0
#include "progress/application_thread.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <string_view>
#include <system_error>

namespace xylem::runtime {
namespace {

/// See ApplicationThread::leave_out_this_thread().
thread_local bool is_left_out = false;

pid_t own_id() noexcept {
  static thread_local const pid_t kId = ::gettid();
  return kId;
}

}  // namespace

void ApplicationThread::leave_out_this_thread() noexcept { is_left_out = true; }

void ApplicationThread::note_call() noexcept {
  if (is_left_out) return;
  const pid_t id = own_id();
  if (id_.load(std::memory_order_relaxed) != id) id_.store(id, std::memory_order_relaxed);
}

ApplicationThread::State ApplicationThread::state() noexcept {
  const pid_t id = id_.load(std::memory_order_relaxed);
  if (id == 0 || id == own_id()) return {};
  if (asked_ != id) {
    std::array<char, 64> path{};
    std::snprintf(path.data(), path.size(), "/proc/self/task/%d/stat", id);
    stat_.reset(::open(path.data(), O_RDONLY | O_CLOEXEC));
    asked_ = stat_ ? id : 0;
  }
  // "<id> (<name>) <state> ... <core> <real-time priority> ...": the name has up to 15 characters
  // of any kind, and the core is the 36th word after the state (proc(5)). Reading fails once the
  // thread has ended, even if another thread has the same id.
  constexpr int kCore = 36;
  std::array<char, 512> text{};
  const auto length = stat_ ? ::pread(stat_.get(), text.data(), text.size(), 0) : 0;
  if (length <= 0) asked_ = 0;
  std::string_view line(text.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  const auto name_end = line.rfind(") ");
  if (name_end == std::string_view::npos) return {};
  line.remove_prefix(name_end + 2);
  State state{.is_running = line.starts_with('R')};
  for (int word = 0; word < kCore; ++word) {
    line.remove_prefix(std::min(line.find(' '), line.size()));
    line.remove_prefix(std::min<std::size_t>(1, line.size()));
  }
  const char* const end = line.data() + line.size();
  const auto [after, error] = std::from_chars(line.data(), end, state.core);
  int priority = 0;
  if (after != end) std::from_chars(after + 1, end, priority);
  if (error != std::errc() || priority != 0) state.core = -1;
  return state;
}

}  // namespace xylem::runtime
