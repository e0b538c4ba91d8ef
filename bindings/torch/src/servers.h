// SPDX-License-Identifier: Apache-2.0
//
// Servers: the threads of a group that complete calls for which no other thread may be waiting.
//
//   serve() ──► the queue of a server ──(the call ends)──► Completion::complete
//
// A group has up to three servers of its own, each with a thread from its first call on. One serves
// collectives in the order of serve(), so that callbacks that call further collectives do so in the
// same order on all ranks. One serves messages, as they end. One begins the next steps of calls
// that consist of several; it runs no callbacks, so nothing delays it.
//
// While a callback runs, on any thread, the futures of its own calls are served by another server,
// which it borrows, so the callback may wait for them. After the outermost callback of a thread has
// returned, what is left in the queue of the borrowed server moves to the group's own servers, at
// its position in the order of serve(). If the borrowed server is running callbacks, this happens
// after them.
#pragma once

#include "origin.h"

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace xylem::pytorch {

/// What a server waits for, and what it does then.
struct Completion {
  enum class Kind : std::uint8_t { collective, message, step };

  Kind kind;
  std::function<bool()> ended;  ///< Whether the call has ended. Makes no progress.
  /// Waits for its end beside the program (Work::wait_beside_program), at most this long.
  std::function<void(std::chrono::nanoseconds)> wait;
  std::function<void()> complete;  ///< Called once, after the end. May run callbacks.
};

/// Thread-safe.
class Servers : public std::enable_shared_from_this<Servers> {
 public:
  Servers() = default;
  Servers(const Servers&) = delete;
  Servers& operator=(const Servers&) = delete;
  ~Servers() = default;

  /// Has a server complete the call after its end. Returns false if the caller must complete it:
  /// after stop(), and if `is_settled` and no earlier collective has to be completed before it.
  /// Throws std::system_error if no more threads can be made.
  bool serve(Completion completion, bool is_settled);
  /// Ends the threads after they have completed their calls, all of which must have ended. Call it
  /// without Python's lock.
  void stop() noexcept;

  /// Exists while callbacks run on this thread, of whatever call. The servers that callbacks have
  /// borrowed are returned when the outermost object of the thread is destroyed.
  class Callbacks {
   public:
    Callbacks() noexcept;
    Callbacks(const Callbacks&) = delete;
    Callbacks& operator=(const Callbacks&) = delete;
    ~Callbacks();
    /// Whether there is an object. Such a thread must not wait for another one that runs callbacks.
    static bool are_running() noexcept { return running; }

   private:
    static thread_local bool running;
    const OriginScope within_;
    const bool is_outermost_;
  };

 private:
  struct Entry {
    std::uint64_t number = 0;  ///< Number of the serve() call.
    std::shared_ptr<const Completion> completion;
  };
  struct Server {
    std::vector<Entry> queue;    ///< In the order of the numbers.
    bool is_borrowed = false;    ///< True while a running callback has borrowed the server.
    bool is_completing = false;  ///< True while the server may be running callbacks.
    bool is_idle = true;
    std::thread thread;
  };

  struct Borrowed {
    std::shared_ptr<Servers> group;
    Server* server;
  };

  Server& make_server();
  /// The group's own server for calls of this kind; null before the first of them.
  Server*& own(Completion::Kind kind) noexcept { return own_[static_cast<std::size_t>(kind)]; }
  bool is_own(const Server& server) const noexcept;
  /// The server that callbacks of this thread have borrowed; null if there is none yet.
  Server* borrowed_server() const noexcept;
  Server& borrow();
  void give_back(Server& server) noexcept;
  void move_queue_to_own(Server& server) noexcept;
  void run(Server& server);
  static bool is_collective(const Entry& entry) noexcept;
  /// Whether a collective that is added now would be the next to be completed.
  static bool is_through(const Server& server) noexcept;
  static std::vector<Entry> remove_ended(Server& server);

  /// What callbacks of this thread have borrowed, from any group.
  static thread_local std::vector<Borrowed> borrowed;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Server> servers_;
  std::array<Server*, 3> own_{};
  std::uint64_t served_ = 0;  ///< How many calls of serve() there were.
  bool stop_ = false;
};

}  // namespace xylem::pytorch
