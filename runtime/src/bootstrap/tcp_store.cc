// SPDX-License-Identifier: Apache-2.0
//
// The TCP store's client, and how it finds its server.
#include "bootstrap/tcp_store.h"

#include "bootstrap/handshake.h"
#include "bootstrap/interface.h"
#include "bootstrap/socket.h"
#include "bootstrap/store_rules.h"
#include "bootstrap/tcp_store_protocol.h"
#include "xylem/base/hash.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

namespace xylem::runtime {
namespace {

using std::chrono::milliseconds;

/// How long, at most, a live server takes to answer a request that does not depend on other ranks.
constexpr auto kAnswerTime = std::chrono::seconds(10);
/// How long a rank whose start has failed waits for the verdict of the start (start_store.h).
constexpr auto kLastWord = std::chrono::seconds(1);

Result<StoreReply> read_reply(int fd, Deadline deadline) {
  std::array<std::byte, StoreReply::kHeaderBytes> header;
  XYLEM_TRY(receive_all(fd, header, deadline));
  XYLEM_TRY(StoreReply reply, read_reply_header(header));
  XYLEM_TRY(receive_all(fd, reply.body, deadline));
  return reply;
}

Status server_gone(const Status& how) {
  if (how.code() == Code::timed_out) {
    return failure(Code::timed_out,
                   fmt::format("rank 0, which serves the start, has not answered for {} s",
                               kAnswerTime.count()),
                   0);
  }
  return failure(Code::peer_lost,
                 fmt::format("rank 0, which serves the start, has ended ({})", how.message()), 0);
}

Key store_key(const Placement& placement) {
  return {placement.secret, "xylem store", bytes_of(placement.job)};
}

Member member_of(const Placement& placement) {
  return Member{placement.rank, placement.size, HostIdentity::of_this_process()};
}

// --- Rank 0 -----------------------------------------------------------------

/// The addresses at which rank 0 listens: those addresses of the host name that are addresses of
/// this host's interfaces. There may be none, if the name resolves only to loopback (as in Debian's
/// /etc/hosts), or if the network translates addresses. Then rank 0 listens at all addresses of
/// this host.
std::vector<SocketAddress> places_to_listen(const std::string& host,
                                            const std::vector<SocketAddress>& addresses,
                                            const std::vector<Interface>& interfaces) {
  if (is_loopback_host(host)) return addresses;
  std::vector<SocketAddress> own;
  for (const SocketAddress& address : addresses) {
    const auto is_it = [&](const Interface& each) { return each.address.same_host(address); };
    if (!address.is_loopback() && std::ranges::any_of(interfaces, is_it)) own.push_back(address);
  }
  return own.empty() ? std::vector{SocketAddress::any(AF_INET6, 0)} : own;
}

Result<std::vector<UniqueFd>> listen_at(const std::vector<SocketAddress>& places,
                                        std::uint16_t port) {
  std::vector<UniqueFd> listeners;
  Status refused;
  for (const SocketAddress& place : places) {
    auto listener = listen_on(place.with_port(port));
    if (place.is_any() && listener.code() == Code::unsupported) {
      listener = listen_on(SocketAddress::any(AF_INET, port));
    }
    if (listener) {
      listeners.push_back(*std::move(listener));
    } else {
      refused = listener.status();
      if (refused.code() == Code::busy) return refused;
    }
  }
  if (listeners.empty()) return refused;
  return listeners;
}

Result<std::shared_ptr<Store>> serve(const TcpStoreAddress& address,
                                     const Placement& placement,
                                     const Logger& logger,
                                     Deadline deadline) {
  XYLEM_TRY(const auto host, resolve(HostPort{address.host, address.ports.front()}, deadline));
  XYLEM_TRY(const auto interfaces, list_interfaces());
  const auto places = places_to_listen(address.host, host, interfaces);
  std::vector<UniqueFd> listeners;
  Status refused;
  for (const std::uint16_t port : address.ports) {
    auto attempt = listen_at(places, port);
    if (attempt) {
      listeners = *std::move(attempt);
      logger.debug(
          fmt::format("start: rank 0 serves at {}", HostPort{address.host, port}.to_string()));
      break;
    }
    refused = attempt.status();
  }
  if (listeners.empty()) {
    return failure(refused.code(),
                   fmt::format("rank 0 cannot serve at port {} of {}: {}; choose another with "
                               "XYLEM_RENDEZVOUS",
                               fmt::join(address.ports, ", "), address.host, refused.message()));
  }
  if (placement.secret_origin == SecretOrigin::job && !is_loopback_host(address.host)) {
    logger.warn(fmt::format(
        "start: whoever reaches {} while the job starts can join it as a rank: XYLEM_SECRET is not "
        "set (to the same random text on all ranks)",
        address.host));
  }
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return failure(Code::exhausted, "cannot open a socket: " + error_text(errno));
  }
  UniqueFd mine(ends[0]);
  XYLEM_TRY(auto server,
            TcpStoreServer::start(std::move(listeners), UniqueFd(ends[1]), store_key(placement),
                                  member_of(placement), logger, deadline));
  return std::shared_ptr<Store>(std::make_shared<TcpStore>(std::move(mine), std::move(server)));
}

// --- Other ranks ------------------------------------------------------------

/// A connection to the store. `verdict` is set if the start had already failed when this rank
/// connected.
struct Membership {
  UniqueFd fd;
  Status verdict;
};

/// The deadlines of one attempt to connect to the store at one address.
struct Limits {
  Deadline answer;  ///< For connecting, and for the server's preamble.
  /// For the server's proof and first reply. It is later than `answer`: the server may have this
  /// rank's proof already, and would consider the rank dead if it closed the connection.
  Deadline welcome;
};

/// Carries out the handshake, and receives the store's first reply. Fails as Handshake::receive()
/// does, or with the connection's error.
Result<StoreReply> greet(int fd, const Key& key, const Member& self, const Limits& limits) {
  Handshake handshake(Handshake::Side::caller, key, self);
  ByteVector out(handshake.preamble().begin(), handshake.preamble().end());
  while (handshake.state() != Handshake::State::done) {
    const bool is_first = handshake.state() == Handshake::State::greeting;
    const Deadline deadline = is_first ? limits.answer : limits.welcome;
    XYLEM_TRY(send_all(fd, out, deadline));
    out.clear();
    ByteVector in(handshake.wants());
    XYLEM_TRY(receive_all(fd, in, deadline));
    XYLEM_TRY(handshake.receive(in, out));
  }
  return read_reply(fd, limits.welcome);
}

Result<Membership> call(const SocketAddress& address,
                        const Key& key,
                        const Member& self,
                        const Limits& limits) {
  Membership membership;
  XYLEM_TRY(membership.fd, connect_to(address, limits.answer));
  XYLEM_TRY(const StoreReply welcome, greet(membership.fd.get(), key, self, limits));
  const Status status = welcome.status();
  if (welcome.answer == StoreAnswer::verdict) {
    membership.verdict = status;
  } else if (!status) {
    return status;
  }
  return membership;
}

/// Tries all addresses in turn, until a server at one of them proves that it belongs to the job.
class Search {
 public:
  Search(const TcpStoreAddress& address, const Placement& placement, Deadline deadline)
      : store_address_(address),
        rank_(placement.rank),
        key_(store_key(placement)),
        self_(member_of(placement)),
        deadline_(deadline) {}

  Result<Membership> run(const std::vector<SocketAddress>& addresses) {
    for (;;) {
      for (const SocketAddress& address : addresses) {
        auto found = call(address, key_, self_,
                          {earlier(deadline_, Deadline::after(patience_)),
                           earlier(deadline_, Deadline::after(patience_ + kAnswerTime))});
        if (found) return found;
        if (is_final(found.status())) return explained(address, found.status());
        if (is_more_telling(found.status())) {
          last_address_ = address;
          last_ = found.status();
        }
        if (deadline_.passed()) return not_found();
      }
      pause();
      // The path to rank 0 may be slow, or lose packets, so later attempts get more time.
      patience_ = std::min(2 * patience_, kMostPatience);
    }
  }

 private:
  /// The limit `answer` of the first attempt at an address, and its maximum for later attempts.
  static constexpr std::chrono::seconds kPatience{2}, kMostPatience{16};

  /// True if another attempt cannot help.
  bool is_final(const Status& status) {
    if (status.code() == Code::mismatch) return true;
    const bool stranger = status.code() == Code::cancelled || status.code() == Code::unsupported;
    // An answer of a stranger is final only at the third time, since the stranger may be the server
    // of an earlier start, which is about to end.
    constexpr int kEnough = 3;
    return store_address_.is_reserved && stranger && ++strangers_ >= kEnough;
  }

  /// True if `status` says more about the cause than `last_`, the failure to report so far.
  /// `peer_lost` (nobody listens) says least; `busy` (another process has this rank) says most, and
  /// is kept.
  bool is_more_telling(const Status& status) const {
    return last_.is_ok() || (last_.code() != Code::busy && status.code() != Code::peer_lost);
  }

  static Status explained(const SocketAddress& address, const Status& status) {
    if (status.code() == Code::mismatch) return status;
    return failure(
        Code::mismatch,
        fmt::format("what serves at {} is not rank 0 of this job: {}; XYLEM_SECRET and "
                    "XYLEM_JOB must be alike on all ranks, without XYLEM_SECRET also the "
                    "user, and the port only this job's",
                    address.to_string(), status.message()));
  }

  void pause() {
    // `spread` differs between ranks, so that ranks that start together do not always retry
    // together.
    const auto spread =
        std::chrono::microseconds(mix((std::uint64_t{rank_} << 32) + ++rounds_) % 4096);
    const auto next = earlier(deadline_, Deadline::after(pause_ + spread));
    std::this_thread::sleep_until(next.point());
    pause_ = std::min(pause_ * 2, milliseconds(200));
  }

  Status not_found() const {
    if (last_.code() == Code::busy) {
      return failure(Code::busy,
                     fmt::format("{} (at {})", last_.message(), last_address_.to_string()), rank_);
    }
    return failure(Code::timed_out,
                   fmt::format("rank 0 did not answer at port {} of {} in time; the last answer of "
                               "{} was: {}. Is rank 0 running, and is this its host?",
                               fmt::join(store_address_.ports, ", "), store_address_.host,
                               last_address_.to_string(), last_.message()),
                   0);
  }

  const TcpStoreAddress& store_address_;
  std::uint32_t rank_;
  Key key_;
  Member self_;
  Deadline deadline_;
  SocketAddress last_address_;
  Status last_;  ///< The most telling failure so far.
  int strangers_ = 0;
  std::uint64_t rounds_ = 0;
  milliseconds pause_{2};
  std::chrono::seconds patience_ = kPatience;
};

}  // namespace

Result<std::shared_ptr<Store>> TcpStore::open(const TcpStoreAddress& address,
                                              const Placement& placement,
                                              const Logger& logger,
                                              Deadline deadline) {
  if (placement.rank == 0) return serve(address, placement, logger, deadline);
  XYLEM_TRY(const auto host, resolve(HostPort{address.host, address.ports.front()}, deadline));
  std::vector<SocketAddress> addresses;
  for (const std::uint16_t port : address.ports) {
    for (const SocketAddress& each : host) addresses.push_back(each.with_port(port));
  }
  XYLEM_TRY(Membership found, Search(address, placement, deadline).run(addresses));
  XYLEM_TRY(found.verdict);
  return std::shared_ptr<Store>(std::make_shared<TcpStore>(std::move(found.fd), nullptr));
}

TcpStore::~TcpStore() {
  ByteVector bye;
  write_request(bye, StoreAsk::bye, {}, {});
  // An error is ignored: if the server has ended, it needs no `bye`.
  static_cast<void>(send_all(fd_.get(), bye, Deadline::after(milliseconds(100))).is_ok());
}

Result<StoreReply> TcpStore::receive_reply(Deadline deadline) {
  XYLEM_TRY(verdict_);
  auto reply = read_reply(fd_.get(), deadline);
  if (!reply) {
    verdict_ = server_gone(reply.status());
  } else if (reply->answer == StoreAnswer::verdict) {
    verdict_ = reply->status();
  }
  XYLEM_TRY(verdict_);
  return reply;
}

void TcpStore::ask(ByteSpan requests) noexcept {
  static_cast<void>(send_all(fd_.get(), requests, Deadline::after(kAnswerTime)).is_ok());
}

Status TcpStore::set(std::string_view key, std::span<const std::byte> value) {
  XYLEM_TRY(check_entry(key, value.size()));
  XYLEM_TRY(verdict_);
  ByteVector request;
  write_request(request, StoreAsk::set, key, value);
  ask(request);
  XYLEM_TRY(const StoreReply reply, receive_reply(Deadline::after(kAnswerTime)));
  return reply.status();
}

Result<std::vector<std::byte>> TcpStore::get(std::string_view key, Deadline deadline) {
  XYLEM_TRY(check_entry(key, 0));
  XYLEM_TRY(verdict_);
  ByteVector request;
  write_request(request, StoreAsk::get, key, {});
  ask(request);
  return this->value(deadline);
}

Result<std::vector<std::byte>> TcpStore::set_and_get(std::string_view key,
                                                     std::span<const std::byte> value,
                                                     std::string_view wanted,
                                                     Deadline deadline) {
  XYLEM_TRY(check_entry(key, value.size()));
  XYLEM_TRY(check_entry(wanted, 0));
  XYLEM_TRY(verdict_);
  ByteVector requests;
  write_request(requests, StoreAsk::set, key, value);
  write_request(requests, StoreAsk::get, wanted, {});
  ask(requests);
  const Deadline last_word =
      earlier(Deadline::after(kAnswerTime), Deadline::after(deadline.left() + kLastWord));
  XYLEM_TRY(const StoreReply reply, receive_reply(last_word));
  XYLEM_TRY(reply.status());
  return this->value(deadline);
}

Result<std::vector<std::byte>> TcpStore::value(Deadline deadline) {
  if (wait_for(fd_.get(), POLLIN, deadline).code() == Code::timed_out) {
    ByteVector request;
    write_request(request, StoreAsk::answer_now, {}, {});
    ask(request);
  }
  XYLEM_TRY(StoreReply reply, receive_reply(Deadline::after(kAnswerTime)));
  XYLEM_TRY(reply.status());
  return std::move(reply.body);
}

Status TcpStore::verdict() {
  if (verdict_ && wait_for(fd_.get(), POLLIN, Deadline::at(Clock::now()))) {
    // No request is pending, so only a verdict or the end of the stream can have arrived.
    const auto heard = receive_reply(Deadline::after(kAnswerTime));
    if (heard) verdict_ = failure(Code::internal, "the store answers what was not asked");
  }
  return verdict_;
}

Status TcpStore::abandon(const Status& why) {
  XYLEM_TRY(verdict_);
  ByteVector request;
  write_request(request, StoreAsk::abandon, {}, write_verdict(why));
  static_cast<void>(send_all(fd_.get(), request, Deadline::after(kLastWord)).is_ok());
  // The server answers with the verdict. If no answer arrives, `why` counts as the verdict.
  if (!wait_for(fd_.get(), POLLIN, Deadline::after(kLastWord))) return why;
  const auto heard = receive_reply(Deadline::after(kLastWord));
  return heard ? why : heard.status();
}

std::vector<std::uint16_t> derived_ports(std::string_view job, std::uint16_t avoid) {
  // Linux assigns ephemeral ports from 32768 on; the ports of most services are below 20000.
  constexpr std::uint16_t kFirst = 20000;
  constexpr std::uint16_t kCount = 12000;
  constexpr std::size_t kCandidates = 8;
  std::vector<std::uint16_t> ports;
  for (std::uint64_t i = 0; ports.size() < kCandidates; ++i) {
    const auto port = static_cast<std::uint16_t>(kFirst + hash_text(job, i) % kCount);
    const bool known = std::ranges::find(ports, port) != ports.end();
    if (port != avoid && !known) ports.push_back(port);
  }
  return ports;
}

}  // namespace xylem::runtime
