// SPDX-License-Identifier: Apache-2.0
//
// The thread that serves the store.
#include "bootstrap/tcp_store_server.h"

#include "bootstrap/poller.h"
#include "bootstrap/rank_set.h"
#include "bootstrap/refusals.h"
#include "bootstrap/service_thread.h"
#include "bootstrap/socket.h"
#include "bootstrap/start_store.h"
#include "bootstrap/store_rules.h"
#include "bootstrap/tcp_store_protocol.h"

#include <fmt/format.h>

#include <sys/eventfd.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <thread>

namespace xylem::runtime {
namespace {

/// Time limit for a connection to prove the job's secret.
constexpr auto kProvingTime = std::chrono::seconds(10);
/// For how long no connection is accepted after descriptors have run out.
constexpr auto kPause = std::chrono::milliseconds(200);
/// How many connections there may be at a time, in addition to one for each rank. If there are
/// more, the oldest one without proof of the job's secret is dropped.
constexpr std::size_t kMostStrangers = 64;
/// How many connections accept_some() accepts at most, so that a flood of connections does not
/// delay the requests of members.
constexpr int kMostAccepted = 64;
constexpr std::size_t kMostBytes = std::size_t{256} << 20;

struct Connection {
  UniqueFd fd;
  std::optional<Handshake> handshake;  ///< Set until the handshake is done.
  std::optional<std::uint32_t> rank;   ///< Set once the handshake is done.
  Clock::time_point since = Clock::now();
  ByteVector in, out;
  std::optional<std::string> waits_for;  ///< The key of a get that is not answered yet.
  bool said_bye = false;
};

class Server final : public TcpStoreServer {
 public:
  Server(std::vector<UniqueFd> listeners,
         Key key,
         const Member& self,
         Logger logger,
         Deadline deadline)
      : listeners_(std::move(listeners)),
        key_(std::move(key)),
        self_(self),
        logger_(std::move(logger)),
        deadline_(deadline),
        joined_(self.size),
        done_(self.size) {}
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server() override {
    if (!thread_.joinable()) return;
    ::eventfd_write(stop_.get(), 1);
    thread_.join();
  }

  Status launch(UniqueFd own_end);

 private:
  using Connections = std::map<int, Connection>;

  // The descriptor itself is the tag of its events.
  Status add(int fd) const { return poller_.add(fd, static_cast<std::uint64_t>(fd), EPOLLIN); }
  Status change(int fd, std::uint32_t events) const {
    return poller_.change(fd, static_cast<std::uint64_t>(fd), events);
  }
  void run();
  bool finished() const { return done_.complete() || (ends_ && ends_->passed()); }
  int wait_ms() const;
  void accept_some(int listener);
  void pause_listening(bool pause);
  void drop_slow_strangers();
  /// If there are too many connections, closes the oldest one without proof of the job's secret.
  void drop_oldest_stranger();
  /// Handles what has arrived on a connection. False if the connection is to be closed.
  bool handle(Connection& connection);
  bool read_all(Connection& connection);
  bool advance_handshake(Connection& connection, Handshake& handshake);
  bool answer_requests(Connection& connection);
  bool answer(Connection& connection, const StoreRequest& request);
  void set(Connection& connection, const StoreRequest& request);
  void reply(Connection& connection, StoreAnswer answer, std::uint32_t rank, ByteSpan body);
  void reply(Connection& connection,
             StoreAnswer answer,
             std::uint32_t rank,
             std::string_view text) {
    reply(connection, answer, rank, bytes_of(text));
  }
  void reply_missing(Connection& connection, std::string_view key);
  bool flush(Connection& connection) const;
  void close(Connections::iterator entry);
  void fail(const Status& verdict);
  void tell(Connection& connection);
  void begin_farewell();

  std::vector<UniqueFd> listeners_;
  Key key_;
  Member self_;
  Logger logger_;
  Deadline deadline_;
  std::optional<Deadline> ends_;  ///< When the thread ends; set by begin_farewell().
  Poller poller_;
  UniqueFd stop_;
  Refusals refusals_{logger_};
  bool listening_ = true;
  Clock::time_point resume_listening_;
  Connections connections_;
  std::deque<int> strangers_;  ///< Connections in the handshake, the oldest first.
  std::map<std::string, ByteVector, std::less<>> values_;
  std::size_t held_bytes_ = 0;
  RankSet joined_;  ///< Ranks that have joined.
  RankSet done_;    ///< Ranks that have left, or have been sent the verdict.
  Status verdict_;  ///< Why the start has failed; OK if it has not.
  std::thread thread_;
};

Status check_descriptor_limit(std::uint32_t size) {
  rlimit limit{};
  const rlim_t needed = size + 2 * kMostStrangers;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return {};
  return failure(
      Code::exhausted,
      fmt::format("serving the start of {} ranks takes up to {} file descriptors, and the "
                  "limit is {}: raise it (ulimit -n {})",
                  size, needed, limit.rlim_cur, needed));
}

Status Server::launch(UniqueFd own_end) {
  XYLEM_TRY(check_descriptor_limit(self_.size));
  XYLEM_TRY(poller_, Poller::create());
  stop_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop_) {
    return failure(Code::exhausted, "cannot serve the store: " + error_text(errno));
  }
  XYLEM_TRY(add(stop_.get()));
  for (const UniqueFd& listener : listeners_) {
    XYLEM_TRY(add(listener.get()));
  }
  XYLEM_TRY(add(own_end.get()));
  const int own = own_end.get();
  Connection connection;
  connection.fd = std::move(own_end);
  connection.rank = self_.rank;
  joined_.add(self_.rank);
  connections_.emplace(own, std::move(connection));

  XYLEM_TRY(thread_, start_service_thread("serve the start of the job", [this] { run(); }));
  return {};
}

void Server::run() {
  while (!finished()) {
    for (const epoll_event& event : poller_.wait(wait_ms())) {
      const int fd = static_cast<int>(event.data.u64);
      if (fd == stop_.get()) {
        begin_farewell();
        continue;
      }
      const auto entry = connections_.find(fd);
      if (entry == connections_.end()) {
        const bool is_listener = std::ranges::any_of(
            listeners_, [fd](const UniqueFd& each) { return each.get() == fd; });
        if (is_listener) accept_some(fd);
      } else if (!handle(entry->second)) {
        close(entry);
      }
    }
    drop_slow_strangers();
  }
  listeners_.clear();
}

int Server::wait_ms() const {
  // The thread wakes up regularly only while there are time limits to check.
  constexpr int kTickMs = 200;
  constexpr int kForeverMs = -1;
  return !strangers_.empty() || !listening_ || ends_ ? kTickMs : kForeverMs;
}

void Server::accept_some(int listener) {
  for (int i = 0; i < kMostAccepted; ++i) {
    auto accepted = accept_from(listener);
    if (!accepted) {
      refusals_.note(accepted.status().message());
      return pause_listening(true);
    }
    if (!*accepted) return;
    drop_oldest_stranger();
    const int fd = accepted->get();
    Connection connection;
    connection.fd = *std::move(accepted);
    connection.handshake.emplace(Handshake::Side::callee, key_, self_);
    if (!add(fd) || !flush(connection)) continue;
    connections_.emplace(fd, std::move(connection));
    strangers_.push_back(fd);
  }
}

void Server::pause_listening(bool pause) {
  if (listening_ == !pause) return;
  listening_ = !pause;
  resume_listening_ = Clock::now() + kPause;
  for (const UniqueFd& listener : listeners_) {
    if (!change(listener.get(), pause ? 0U : EPOLLIN)) return;
  }
}

void Server::drop_slow_strangers() {
  const auto latest = Clock::now() - kProvingTime;
  while (!strangers_.empty()) {
    const auto oldest = connections_.find(strangers_.front());
    if (oldest->second.since >= latest) break;
    close(oldest);
  }
  if (Clock::now() >= resume_listening_) pause_listening(false);
}

void Server::drop_oldest_stranger() {
  if (strangers_.empty() || connections_.size() < self_.size + kMostStrangers) return;
  refusals_.note("too many say nothing");
  close(connections_.find(strangers_.front()));
}

bool Server::handle(Connection& connection) {
  // Requests that arrived before the end of the stream are still handled, above all a `bye`.
  const bool open = read_all(connection);
  while (connection.handshake) {
    if (connection.in.size() < connection.handshake->wants()) return open && flush(connection);
    if (!advance_handshake(connection, *connection.handshake)) return false;
  }
  return answer_requests(connection) && flush(connection) && open;
}

bool Server::read_all(Connection& connection) {
  // The number of bytes read at a time is limited, so that a member that sends without end does not
  // fill the memory or delay other members.
  constexpr std::size_t kMostBuffered = 4 * kLargestValue;
  std::array<std::byte, 16 * 1024> piece;
  while (connection.in.size() < kMostBuffered) {
    const ssize_t got = ::recv(connection.fd.get(), piece.data(), piece.size(), 0);
    if (got > 0) {
      WireWriter(connection.in).raw(std::span(piece).first(static_cast<std::size_t>(got)));
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      return false;
    } else if (errno == EAGAIN) {
      return true;
    }
  }
  return true;
}

bool Server::advance_handshake(Connection& connection, Handshake& handshake) {
  const std::size_t size = handshake.wants();
  const Status status = handshake.receive(std::span(connection.in).first(size), connection.out);
  connection.in.erase(connection.in.begin(),
                      connection.in.begin() + static_cast<std::ptrdiff_t>(size));
  if (!status) {
    refusals_.note(status.message());
    // The peer learns the reason from this rank's proof or refusal.
    flush(connection);
    if (status.code() == Code::mismatch) fail(status);
    return false;
  }
  if (handshake.state() != Handshake::State::done) return true;

  const std::uint32_t rank = handshake.peer().rank;
  connection.handshake.reset();
  std::erase(strangers_, connection.fd.get());
  if (rank >= self_.size || joined_.has(rank)) {
    reply(connection, StoreAnswer::taken, rank,
          fmt::format("another process has come as rank {}: give each rank once, or wait for an "
                      "earlier start to end",
                      rank));
    flush(connection);
    return false;
  }
  connection.rank = rank;
  joined_.add(rank);
  if (verdict_) {
    reply(connection, StoreAnswer::done, rank, std::string_view());
  } else {
    tell(connection);
  }
  return true;
}

bool Server::answer_requests(Connection& connection) {
  std::size_t at = 0;
  for (;;) {
    std::size_t used = 0;
    const auto request = read_request(std::span(connection.in).subspan(at), used);
    if (!request) return false;
    const auto& asked = *request;
    if (!asked) break;
    at += used;
    if (!answer(connection, *asked)) return false;
  }
  connection.in.erase(connection.in.begin(),
                      connection.in.begin() + static_cast<std::ptrdiff_t>(at));
  return true;
}

bool Server::answer(Connection& connection, const StoreRequest& request) {
  if (request.ask == StoreAsk::bye) {
    connection.said_bye = true;
    return false;
  }
  // The member has been sent the verdict, which answers this request, too.
  if (!verdict_) return true;
  switch (request.ask) {
    case StoreAsk::set: set(connection, request); return true;
    case StoreAsk::get:
      if (const auto found = values_.find(request.key); found != values_.end()) {
        reply(connection, StoreAnswer::done, StoreReply::kNobody, found->second);
      } else {
        connection.waits_for = request.key;
      }
      return true;
    case StoreAsk::answer_now:
      if (connection.waits_for) reply_missing(connection, *connection.waits_for);
      return true;
    case StoreAsk::abandon: fail(read_verdict(request.value)); return true;
    case StoreAsk::bye: break;
  }
  return false;
}

void Server::set(Connection& connection, const StoreRequest& request) {
  held_bytes_ += request.key.size() + request.value.size();
  const Status allowed = held_bytes_ > kMostBytes
                             ? failure(Code::exhausted, "the store of the start is full")
                             : check_entry(request.key, request.value.size());
  if (!allowed)
    return reply(connection, StoreAnswer::refused, StoreReply::kNobody, allowed.message());
  const auto [entry, is_new] = values_.emplace(request.key, request.value);
  if (!is_new) {
    return reply(connection, StoreAnswer::refused, StoreReply::kNobody,
                 set_twice(request.key).message());
  }
  reply(connection, StoreAnswer::done, StoreReply::kNobody, std::string_view());
  for (auto& [fd, other] : connections_) {
    if (other.waits_for != request.key) continue;
    reply(other, StoreAnswer::done, StoreReply::kNobody, entry->second);
    flush(other);
  }
}

void Server::reply(Connection& connection, StoreAnswer answer, std::uint32_t rank, ByteSpan body) {
  connection.waits_for.reset();
  write_reply(connection.out, answer, rank, body);
}

void Server::reply_missing(Connection& connection, std::string_view key) {
  if (joined_.complete()) {
    return reply(connection, StoreAnswer::timed_out, StoreReply::kNobody,
                 fmt::format("key \"{}\" was not set in time", key));
  }
  const Status who = joined_.missing_error();
  reply(connection, StoreAnswer::timed_out, who.peer().value_or(StoreReply::kNobody),
        who.message());
}

bool Server::flush(Connection& connection) const {
  const int fd = connection.fd.get();
  while (!connection.out.empty()) {
    const ssize_t sent = ::send(fd, connection.out.data(), connection.out.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      connection.out.erase(connection.out.begin(), connection.out.begin() + sent);
    } else if (errno == EAGAIN) {
      return change(fd, EPOLLIN | EPOLLOUT).is_ok();
    } else if (errno != EINTR) {
      return false;
    }
  }
  return change(fd, EPOLLIN).is_ok();
}

void Server::close(Connections::iterator entry) {
  const std::optional<std::uint32_t> rank = entry->second.rank;
  const bool said_bye = entry->second.said_bye;
  poller_.remove(entry->first);
  if (entry->second.handshake) std::erase(strangers_, entry->first);
  connections_.erase(entry);
  if (!rank) return;
  done_.add(*rank);
  if (!said_bye) {
    fail(failure(Code::peer_lost, fmt::format("rank {} ended during the start", *rank), rank));
  }
}

void Server::fail(const Status& verdict) {
  if (!verdict_) return;
  verdict_ = verdict;
  for (auto& [fd, connection] : connections_) {
    if (!connection.rank) continue;
    tell(connection);
    flush(connection);
  }
}

void Server::tell(Connection& connection) {
  connection.waits_for.reset();
  write_reply(connection.out, StoreAnswer::verdict, StoreReply::kNobody, write_verdict(verdict_));
  if (connection.rank) done_.add(*connection.rank);
}

void Server::begin_farewell() {
  poller_.remove(stop_.get());
  // If the start has failed, the server continues for a while, to send the verdict to late ranks.
  ends_ = verdict_ ? Deadline::at(Clock::now()) : earlier(deadline_, Deadline::after(kFarewell));
  // Rank 0 leaves the store. If not all ranks have joined by then, the start fails. Otherwise the
  // ranks need nothing more from the store.
  if (!joined_.complete()) fail(joined_.missing_error());
  for (auto& [fd, connection] : connections_) {
    if (!connection.waits_for) continue;
    reply_missing(connection, *connection.waits_for);
    flush(connection);
  }
}

}  // namespace

Result<std::unique_ptr<TcpStoreServer>> TcpStoreServer::start(std::vector<UniqueFd> listeners,
                                                              UniqueFd own_end,
                                                              const Key& key,
                                                              const Member& self,
                                                              const Logger& logger,
                                                              Deadline deadline) {
  auto server = std::make_unique<Server>(std::move(listeners), key, self, logger, deadline);
  XYLEM_TRY(server->launch(std::move(own_end)));
  return std::unique_ptr<TcpStoreServer>(std::move(server));
}

}  // namespace xylem::runtime
