// SPDX-License-Identifier: Apache-2.0
#include "servers.h"

#include <sys/prctl.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace xylem::pytorch {
namespace {

/// How long a server of calls that may end in any order waits for the first of them before it
/// checks the others. The time doubles up to the limit, since a call that does not end soon may
/// take long, and short waits use more CPU time.
constexpr std::chrono::microseconds kFirstLook{200}, kLongestLook{20'000};

}  // namespace

thread_local bool Servers::Callbacks::running = false;
thread_local std::vector<Servers::Borrowed> Servers::borrowed;

Servers::Callbacks::Callbacks() noexcept
    : within_({Origin::Kind::unknown, 0, 0}), is_outermost_(!std::exchange(running, true)) {}

Servers::Callbacks::~Callbacks() {
  if (!is_outermost_) return;
  running = false;
  for (const auto& [group, server] : std::exchange(borrowed, {})) group->give_back(*server);
}

bool Servers::serve(Completion completion, bool is_settled) {
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return false;
    const Completion::Kind kind = completion.kind;
    const bool borrows = Callbacks::are_running() && kind != Completion::Kind::step;
    Server* server = borrows ? borrowed_server() : own(kind);
    const bool is_next = !server || kind != Completion::Kind::collective || is_through(*server);
    if (is_next && is_settled) return false;
    if (!server) server = borrows ? &borrow() : (own(kind) = &make_server());
    server->queue.push_back({++served_, std::make_shared<const Completion>(std::move(completion))});
  }
  changed_.notify_all();
  return true;
}

void Servers::stop() noexcept {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    for (Server& server : servers_) threads.push_back(std::move(server.thread));
  }
  changed_.notify_all();
  for (std::thread& thread : threads) {
    // A callback that destroys the group may run on one of these threads, or one of them may be
    // waiting for it.
    if (Callbacks::are_running()) {
      thread.detach();
    } else {
      thread.join();
    }
  }
}

Servers::Server& Servers::make_server() {
  Server& server = servers_.emplace_back();
  try {
    server.thread = std::thread([self = shared_from_this(), &server] { self->run(server); });
  } catch (...) {
    servers_.pop_back();
    throw;
  }
  return server;
}

bool Servers::is_own(const Server& server) const noexcept {
  return std::ranges::find(own_, &server) != own_.end();
}

Servers::Server* Servers::borrowed_server() const noexcept {
  const auto mine =
      std::ranges::find(borrowed, this, [](const Borrowed& one) { return one.group.get(); });
  return mine == borrowed.end() ? nullptr : mine->server;
}

Servers::Server& Servers::borrow() {
  const auto spare = std::ranges::find_if(servers_, [this](const Server& server) {
    return !is_own(server) && !server.is_borrowed && server.is_idle;
  });
  Server& server = spare == servers_.end() ? make_server() : *spare;
  borrowed.push_back({shared_from_this(), &server});
  server.is_borrowed = true;
  return server;
}

void Servers::give_back(Server& server) noexcept {
  const std::lock_guard lock(mutex_);
  server.is_borrowed = false;
  // If the server is running callbacks, it does this itself after them.
  if (!server.is_completing) move_queue_to_own(server);
}

void Servers::move_queue_to_own(Server& server) noexcept {
  if (stop_) return;  // Its thread continues until its queue is empty.
  for (Entry& entry : std::exchange(server.queue, {})) {
    Server*& target = own(entry.completion->kind);
    try {
      if (!target) target = &make_server();
    } catch (const std::system_error&) {
      target = &server;  // The entry stays here.
    }
    const auto place = std::ranges::upper_bound(target->queue, entry.number, {}, &Entry::number);
    target->queue.insert(place, std::move(entry));
  }
  changed_.notify_all();
}

bool Servers::is_collective(const Entry& entry) noexcept {
  return entry.completion->kind == Completion::Kind::collective;
}

bool Servers::is_through(const Server& server) noexcept {
  return !server.is_completing && std::ranges::none_of(server.queue, is_collective);
}

/// Removes what may be completed: every message and step that has ended, and the collectives that
/// have ended before the first that has not.
std::vector<Servers::Entry> Servers::remove_ended(Server& server) {
  bool is_blocked = false;  // Whether a collective has been found that has not ended.
  std::vector<Entry> ended, rest;
  for (Entry& entry : server.queue) {
    const bool is_ordered = is_collective(entry);
    if (!(is_ordered && is_blocked) && entry.completion->ended()) {
      ended.push_back(std::move(entry));
    } else {
      is_blocked = is_blocked || is_ordered;
      rest.push_back(std::move(entry));
    }
  }
  server.queue = std::move(rest);
  return ended;
}

void Servers::run(Server& server) {
  ::prctl(PR_SET_NAME, "xylem futures");
  auto look = kFirstLook;
  std::unique_lock lock(mutex_);
  while (true) {
    if (server.queue.empty()) {
      server.is_idle = true;
      changed_.wait(lock, [&] { return stop_ || !server.queue.empty(); });
      if (server.queue.empty()) return;
      look = kFirstLook;
    }
    // A server that was made for a call has never waited for its first call, so `is_idle` must be
    // cleared here, too.
    server.is_idle = false;
    // A waiting thread advances all operations of the group, so it is enough to wait for one of
    // them. Collectives are completed in order, so others need not be checked before the first one
    // ends. Other calls may end at any time.
    const auto first = std::ranges::find_if(server.queue, is_collective);
    auto awaited = (first == server.queue.end() ? server.queue.begin() : first)->completion;
    const auto limit = std::ranges::all_of(server.queue, is_collective) ? kLongestLook : look;
    lock.unlock();
    awaited->wait(limit);
    awaited.reset();
    lock.lock();
    std::vector<Entry> ended = remove_ended(server);
    if (ended.empty()) {
      look = std::min(2 * look, kLongestLook);
      continue;
    }
    look = kFirstLook;
    server.is_completing = true;
    lock.unlock();
    {
      const Callbacks callbacks;  // Destroying tensors may run Python code, too.
      for (const Entry& entry : ended) entry.completion->complete();
      ended.clear();
    }
    lock.lock();
    server.is_completing = false;
    if (!is_own(server) && !server.is_borrowed) move_queue_to_own(server);
  }
}

}  // namespace xylem::pytorch
