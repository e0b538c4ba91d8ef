// SPDX-License-Identifier: Apache-2.0
//
// Joining, from the choice of the interface to the connections.
#include "bootstrap/control_join.h"

#include "bootstrap/interface.h"
#include "bootstrap/neighbours.h"
#include "bootstrap/socket.h"
#include "xylem/base/hash.h"

#include <fmt/format.h>

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace xylem::runtime {
namespace {

using std::chrono::milliseconds;

constexpr auto kRetry = milliseconds(50);
/// How often the deadline and the time limits of connections are checked.
constexpr auto kTick = milliseconds(200);
/// How long a rank whose start has failed still accepts connections, to report the failure.
constexpr auto kStay = milliseconds(1000);

}  // namespace

Result<std::unique_ptr<ControlPlane>> ControlPlane::join(const Placement& placement,
                                                         Store& store,
                                                         const Config& config,
                                                         const Logger& logger,
                                                         Deadline deadline) {
  XYLEM_TRY(const auto interfaces, list_interfaces());
  // A job of one rank needs no rendezvous host.
  const std::string host = placement.size == 1 ? "" : placement.rendezvous_host;
  XYLEM_TRY(const RendezvousHost rendezvous, find_rendezvous_host(host, deadline));
  XYLEM_TRY(const InterfaceChoice choice,
            choose_interface(interfaces, config.interfaces, rendezvous));
  logger.debug(fmt::format("start: interface {} ({}): {}", choice.chosen.name,
                           choice.chosen.address.host(), choice.reason));
  return ControlJoin(placement, store, logger, deadline).run(choice);
}

ControlJoin::ControlJoin(const Placement& placement,
                         Store& store,
                         const Logger& logger,
                         Deadline deadline,
                         Dialect dialect)
    : placement_(placement),
      store_(store),
      start_(dynamic_cast<StartStore*>(&store)),
      logger_(logger),
      deadline_(deadline),
      dialect_(std::move(dialect)),
      self_{placement.rank, placement.size, HostIdentity::of_this_process()},
      joined_(placement.size),
      neighbours_(neighbours(placement.rank, placement.size)),
      refusals_(logger),
      greeter_(poller_, 0, refusals_) {}

Result<std::unique_ptr<ControlPlane>> ControlJoin::run(const InterfaceChoice& choice) {
  XYLEM_TRY(network_, ControlNetwork::create(self_, choice, logger_));
  if (placement_.size == 1) return std::unique_ptr<ControlPlane>(std::move(network_));
  if (const Status status = connect_ranks(choice); !status) return abandon(status);
  return std::unique_ptr<ControlPlane>(std::move(network_));
}

Status ControlJoin::connect_ranks(const InterfaceChoice& choice) {
  XYLEM_TRY(open(choice));
  XYLEM_TRY(read_cards());
  XYLEM_TRY(connect_all());
  // All control links of this rank exist. Connections for payload are made later by
  // PayloadConnections, at other ports. So the listener is no longer needed.
  poller_.remove(listener_.get());
  listener_.reset();
  const Status status = network_->gather({}, deadline_).status();
  return status.code() == Code::timed_out ? explain_timeout() : status;
}

Status ControlJoin::open(const InterfaceChoice& choice) {
  XYLEM_TRY(poller_, Poller::create());
  XYLEM_TRY(listener_, listen_on(choice.chosen.address.with_port(0)));
  XYLEM_TRY(const SocketAddress address, SocketAddress::of_socket(listener_.get()));
  const auto add = [this](int fd) {
    return poller_.add(fd, static_cast<std::uint64_t>(fd), EPOLLIN);
  };
  XYLEM_TRY(add(listener_.get()));
  XYLEM_TRY(add(network_->fd()));
  if (start_ != nullptr && start_->fd() >= 0) XYLEM_TRY(add(start_->fd()));
  return publish(address);
}

std::string ControlJoin::key_of(std::string_view what, std::uint32_t rank) const {
  return fmt::format("{:08x}.{}.{}", static_cast<std::uint32_t>(hash_text(placement_.job)), what,
                     rank);
}

Status ControlJoin::publish(const SocketAddress& address) {
  const auto use_session = [this](ByteSpan session) {
    ByteVector context;
    WireWriter(context).text(placement_.job).raw(session);
    key_ = Key(placement_.secret, "xylem control", context);
    network_->open_payload_connections(Key(placement_.secret, "xylem payload", context));
  };
  const std::string session_key = key_of("session", 0);
  const std::string card_key = key_of("card", placement_.rank);
  const ByteVector card = Card{dialect_, self_.host, address}.write();
  if (placement_.rank == 0) {
    const Nonce session = make_nonce();
    XYLEM_TRY(store_.set(session_key, session));
    use_session(session);
    return store_.set(card_key, card);
  }
  if (start_ == nullptr) XYLEM_TRY(store_.set(card_key, card));
  XYLEM_TRY(
      const ByteVector session,
      explained(start_ == nullptr ? store_.get(session_key, deadline_)
                                  : start_->set_and_get(card_key, card, session_key, deadline_)));
  use_session(session);
  return {};
}

/// Returns `value`, but replaces a time-out by an error that names the missing ranks.
Result<ByteVector> ControlJoin::explained(Result<ByteVector> value) {
  // If the error has a peer, the store has named the missing ranks already.
  if (value.code() == Code::timed_out && !value.status().peer()) return explain_timeout();
  return value;
}

Status ControlJoin::read_cards() {
  for (const std::uint32_t rank : neighbours_) {
    if (rank > placement_.rank) XYLEM_TRY(read_card(rank));
  }
  return {};
}

Status ControlJoin::read_card(std::uint32_t rank) {
  XYLEM_TRY(const ByteVector bytes, explained(store_.get(key_of("card", rank), deadline_)));
  const auto card = Card::read(bytes);
  if (!card) {
    return failure(Code::mismatch,
                   fmt::format("what the store holds for rank {} is not of Xylem: {}", rank,
                               card.status().message()),
                   rank);
  }
  if (card->address.is_loopback() && card->host.is_elsewhere(self_.host)) {
    return failure(
        Code::invalid_argument,
        fmt::format("rank {} is on another host and listens on {} only: name an interface "
                    "that both hosts reach in XYLEM_INTERFACES",
                    rank, card->address.host()),
        rank);
  }
  callees_.emplace(rank, Callee{card->address});
  return {};
}

std::string ControlJoin::place_of(std::uint32_t rank) const {
  return fmt::format("rank {} at {}", rank, callees_.at(rank).address.to_string());
}

// --- Connecting -------------------------------------------------------------

Status ControlJoin::connect_all() {
  while (is_anyone_awaited()) {
    if (deadline_.passed()) return explain_timeout();
    XYLEM_TRY(turn());
  }
  return {};
}

Status ControlJoin::abandon(Status why) {
  if (start_ != nullptr) {
    why = start_->abandon(why);
    network_->report_failure(why);
  } else {
    network_->report_failure(why);
    tell_callers(why);
  }
  return why;
}

void ControlJoin::tell_callers(const Status& why) {
  if (!listener_ || why.code() == Code::timed_out) return;
  const Deadline until = earlier(deadline_, Deadline::after(kStay));
  // Each rank that connects meanwhile receives the failure over its new link
  // (ControlNetwork::add_link).
  while (is_anyone_awaited() && !until.passed()) static_cast<void>(turn().is_ok());
}

bool ControlJoin::is_anyone_awaited() const {
  return std::ranges::any_of(neighbours_, [this](std::uint32_t rank) {
    return !network_->has_link(rank) && !network_->is_lost(rank);
  });
}

Status ControlJoin::turn() {
  if (start_ != nullptr) XYLEM_TRY(start_->verdict());
  start_calls();
  for (const epoll_event& event : poller_.wait(wait_ms())) {
    const int fd = static_cast<int>(event.data.u64);
    if (fd == listener_.get()) {
      XYLEM_TRY(greeter_.accept_some(
          fd, [this] { return Handshake(Handshake::Side::callee, key_, self_, dialect_); },
          neighbours_.size()));
    } else if (auto ended = greeter_.advance(fd)) {
      const auto callee = ended->greeting.callee();
      XYLEM_TRY(ended->why ? take_over(std::move(ended->greeting))
                           : on_refused(callee, ended->why));
    }
  }
  greeter_.drop_slow_strangers();
  return network_->drive(0);
}

int ControlJoin::wait_ms() const {
  Deadline until = earlier(deadline_, Deadline::after(kTick));
  for (const auto& [rank, callee] : callees_) {
    if (!callee.is_being_called) until = earlier(until, Deadline::at(callee.next_try));
  }
  return until.left_ms();
}

void ControlJoin::start_calls() {
  const auto now = Clock::now();
  for (auto& [rank, callee] : callees_) {
    if (!callee.is_being_called && callee.next_try <= now) call(rank, callee);
  }
}

void ControlJoin::call(std::uint32_t rank, Callee& callee) {
  callee.next_try = Clock::now() + kRetry;
  auto fd = start_connect(callee.address);
  if (!fd) {
    // Ports or descriptors have run out, perhaps only for a short time. So the attempt to connect
    // is repeated later. If no attempt succeeds before the deadline, the time-out error contains
    // `last_refusal_`.
    last_refusal_ = fd.status();
    if (fd.code() == Code::peer_lost) network_->declare_lost(rank, fd.status().message());
    return;
  }
  callee.is_being_called = greeter_.call(
      *std::move(fd), Handshake(Handshake::Side::caller, key_, self_, dialect_), rank);
}

Status ControlJoin::take_over(Greeting greeting) {
  const Member& peer = greeting.peer();
  const auto callee = greeting.callee();
  if (callee && peer.rank != *callee) {
    return failure(Code::mismatch,
                   fmt::format("{} answers as rank {}", place_of(*callee), peer.rank), callee);
  }
  const bool calls_us =
      peer.rank < placement_.rank && std::ranges::binary_search(neighbours_, peer.rank);
  if (network_->has_link(peer.rank) || (!callee && !calls_us)) {
    last_refusal_ = failure(Code::mismatch,
                            fmt::format("a second process came as rank {}", peer.rank), peer.rank);
    logger_.warn(fmt::format("start: {}", last_refusal_.message()));
    return {};
  }
  callees_.erase(peer.rank);
  return network_->add_link(greeting.take_fd(), peer, greeting.keys());
}

Status ControlJoin::on_refused(std::optional<std::uint32_t> rank, const Status& why) {
  if (why.code() == Code::mismatch) return why;
  if (!rank) {
    // Any process can connect to the port, so the failed handshake of an incoming connection does
    // not end the start.
    if (is_stranger(why)) last_refusal_ = why;
    return {};
  }
  last_refusal_ = why;
  if (is_stranger(why)) {
    return failure(
        Code::mismatch,
        fmt::format("what answers as {} is not of this job: {}; XYLEM_SECRET and XYLEM_JOB "
                    "must be alike on all ranks",
                    place_of(*rank), why.message()),
        rank);
  }
  if (why.code() == Code::peer_lost) {
    // The connection was refused. The rank had begun to listen before it published the address, so
    // its process has ended.
    network_->declare_lost(*rank,
                           "it no longer listens at " + callees_.at(*rank).address.to_string());
    return {};
  }
  Callee& callee = callees_.at(*rank);
  callee.is_being_called = false;
  callee.next_try = Clock::now() + kRetry;
  return {};
}

// --- Missing ranks ----------------------------------------------------------

Status ControlJoin::explain_timeout() {
  // The deadline has passed, so get() must not wait for a key. `enough` limits the loop, since the
  // store itself may be slow.
  const Deadline enough = Deadline::after(std::chrono::seconds(2));
  const Deadline now = Deadline::after(milliseconds(0));
  joined_.add(placement_.rank);
  for (const std::uint32_t rank : joined_.missing()) {
    const auto card = store_.get(key_of("card", rank), now);
    if (card) joined_.add(rank);
    // The store's error names the rank that has failed, or says that its server has ended.
    if (card.status().peer() || card.code() == Code::peer_lost) return card.status();
    if (enough.passed()) break;
  }
  if (!joined_.complete()) return joined_.missing_error();
  for (const std::uint32_t rank : neighbours_) {
    if (network_->has_link(rank)) continue;
    const std::string detail =
        last_refusal_ ? "" : fmt::format(" (the last attempt: {})", last_refusal_.message());
    return failure(Code::timed_out,
                   fmt::format("rank {} has come but is not connected to rank {}{}", rank,
                               placement_.rank, detail),
                   rank);
  }
  return failure(Code::timed_out, "all ranks have come, but not all are connected in time");
}

}  // namespace xylem::runtime
