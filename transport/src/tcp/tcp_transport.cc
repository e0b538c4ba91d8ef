// SPDX-License-Identifier: Apache-2.0
#include "tcp/tcp_transport.h"

#include "xylem/base/check.h"
#include "xylem/base/hash.h"

#include <fmt/format.h>

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace xylem::transport {
namespace tcp {
namespace {

/// With up to this many sockets, progress() reads from each. With more, epoll first reports which
/// sockets are ready.
constexpr std::size_t kFewSockets = 4;

/// How many bytes the kernel keeps for a connection that it has not sent yet. By default, it keeps
/// several MiB, and a frame that the peer waits for (an answer to an announcement, credit) would
/// wait behind these bytes. Bytes on their way are not counted, so long links stay full.
constexpr int kMostUnsent = 256 * 1024;

/// The address of a tcp transport. It names no host, since the owner makes the connections; it only
/// shows that the peer uses this protocol with the same `ahead`.
struct Address {
  std::uint64_t magic = 0x31706374'6d6c7978;  // "xylmtcp1"
  std::uint64_t ahead = 0;
  std::uint64_t checksum = 0;

  std::uint64_t sum() const noexcept { return combine(magic, ahead); }
};

}  // namespace

Result<std::unique_ptr<Transport>> SocketTransport::create(TcpOptions options,
                                                           const Logger& logger) {
  std::unique_ptr<SocketTransport> transport(new SocketTransport(std::move(options), logger));
  if (!transport->epoll_) {
    return failure(Code::exhausted, fmt::format("cannot watch sockets: {}; raise ulimit -n",
                                                std::generic_category().message(errno)));
  }
  return std::unique_ptr<Transport>(std::move(transport));
}

SocketTransport::SocketTransport(TcpOptions options, Logger logger)
    : options_(std::move(options)),
      logger_(std::move(logger)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  Address address{.ahead = options_.ahead};
  address.checksum = address.sum();
  static_assert(sizeof address == std::tuple_size_v<decltype(address_)>);
  std::memcpy(address_.data(), &address, sizeof address);
}

// Written data arrives if flush() has returned true. By contract, no operation is pending here. If
// one is, it ends without a call of `done`.
SocketTransport::~SocketTransport() {
  for (const auto& endpoint : endpoints_) {
    if (endpoint->state == Endpoint::State::connected) {
      disconnect(*endpoint, Endpoint::State::closed, Code::peer_lost);
    }
  }
}

SocketTransport::Endpoint& SocketTransport::at(EndpointId id) {
  XYLEM_CHECK(id < endpoints_.size(), id, endpoints_.size());
  return *endpoints_[id];
}

Result<EndpointId> SocketTransport::connect(std::span<const std::byte> address) {
  Address theirs;
  if (address.size() == sizeof theirs) std::memcpy(&theirs, address.data(), sizeof theirs);
  if (address.size() != sizeof theirs || theirs.magic != Address().magic ||
      theirs.checksum != theirs.sum()) {
    return failure(
        Code::invalid_argument,
        fmt::format("tcp address of {} bytes is damaged, or of another version of Xylem: "
                    "pass what address() of the peer returned",
                    address.size()));
  }
  if (theirs.ahead != options_.ahead) {
    return failure(Code::mismatch,
                   fmt::format("the peer lets {} bytes be sent ahead of receives, this end {}",
                               theirs.ahead, options_.ahead));
  }
  const auto id = static_cast<EndpointId>(endpoints_.size());
  endpoints_.push_back(std::make_unique<Endpoint>(id, matcher_, outcomes_, options_.ahead));
  return id;
}

Status SocketTransport::adopt(EndpointId id, Connection connection) {
  Endpoint& endpoint = at(id);
  const bool is_awaited =
      endpoint.state == Endpoint::State::fresh || endpoint.state == Endpoint::State::wanted;
  if (!is_awaited) return {};
  const int on = 1;
  // Errors are ignored: sockets of other families, which tests use, have no such options.
  ::setsockopt(connection.socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(connection.socket.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMostUnsent,
               sizeof kMostUnsent);
  epoll_event event{.events = EPOLLIN, .data = {.u32 = id}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, connection.socket.get(), &event) != 0) {
    return failure(Code::exhausted, fmt::format("cannot watch a connection: {}",
                                                std::generic_category().message(errno)));
  }
  endpoint.outbox.start(connection);
  endpoint.inbox.start(connection);
  endpoint.socket = std::move(connection.socket);
  endpoint.state = Endpoint::State::connected;
  connected_.push_back(id);
  pump(id);
  return {};
}

Posted SocketTransport::send(EndpointId to,
                             Tag tag,
                             ConstRegion source,
                             Operation& operation) noexcept {
  XYLEM_CHECK(source.memory.kind == MemoryKind::host, xylem::name(source.memory.kind));
  Endpoint& endpoint = at(to);
  endpoint.traffic.count(source.bytes);
  operation.state = nullptr;  // So Matcher::cancel() does not find this send.
  if (endpoint.lost != Code::ok) {
    operation.code = endpoint.lost;
    return Posted::done;
  }
  if (endpoint.state != Endpoint::State::connected) {
    endpoint.outbox.send(tag, source, operation);
    if (endpoint.state == Endpoint::State::fresh) {
      endpoint.state = Endpoint::State::wanted;
      if (owner_ != nullptr) owner_->on_connection_needed(to);
    }
    return Posted::pending;
  }
  if (endpoint.outbox.send_now(endpoint.socket.get(), tag, source)) {
    watch(to);
    operation.code = Code::ok;
    return Posted::done;
  }
  endpoint.outbox.send(tag, source, operation);
  const std::size_t before = outcomes_.size();
  pump(to);
  // If pump() has completed this send, return Posted::done, and remove the outcome so that `done`
  // is not called.
  for (std::size_t i = before; i < outcomes_.size(); ++i) {
    if (outcomes_[i].operation != &operation) continue;
    operation.code = outcomes_[i].code;
    outcomes_.erase(outcomes_.begin() + static_cast<std::ptrdiff_t>(i));
    return Posted::done;
  }
  return Posted::pending;
}

Posted SocketTransport::recv(
    Tag tag, Tag mask, Region target, Operation& operation, Tag* sender_tag) noexcept {
  XYLEM_CHECK(target.memory.kind == MemoryKind::host, xylem::name(target.memory.kind));
  const Receive receive{tag, mask, target, &operation, sender_tag};
  Arrived* const arrived = matcher_.find_arrived(tag, mask);
  if (arrived == nullptr) {
    matcher_.post(receive);
    return Posted::pending;
  }
  const StreamId stream = arrived->stream;
  matcher_.drop(*arrived);
  operation.state = nullptr;
  const bool is_over = at(stream.channel).inbox.match(stream.id, receive);
  pump(stream.channel);
  return is_over ? Posted::done : Posted::pending;
}

void SocketTransport::cancel(Operation& operation) noexcept {
  if (matcher_.cancel(operation)) {
    outcomes_.push_back({&operation, Code::cancelled, 0});
    return;
  }
  for (EndpointId id = 0; id < endpoints_.size(); ++id) {
    Endpoint& endpoint = *endpoints_[id];
    if (!endpoint.inbox.cancel(operation) && !endpoint.outbox.cancel(operation)) continue;
    return pump(id);
  }
}

std::size_t SocketTransport::discard(Tag tag, Tag mask) noexcept {
  std::size_t count = 0;
  while (Arrived* const arrived = matcher_.find_arrived(tag, mask)) {
    const StreamId stream = arrived->stream;
    matcher_.drop(*arrived);
    at(stream.channel).inbox.drop(stream.id);
    pump(stream.channel);
    ++count;
  }
  return count;
}

/// Writes as much as the socket accepts.
void SocketTransport::pump(EndpointId id) {
  Endpoint& endpoint = at(id);
  if (endpoint.state != Endpoint::State::connected) return;
  const Io io = endpoint.outbox.pump(endpoint.socket.get());
  // On Io::ended, the endpoint is not lost yet: data that the peer sent before it closed must be
  // read first. The next read then returns Io::ended.
  if (io == Io::broken) return lose(id, io);
  watch(id);
}

/// Makes epoll watch the socket for EPOLLOUT while there is more to write.
void SocketTransport::watch(EndpointId id) {
  Endpoint& endpoint = at(id);
  const bool waits = !endpoint.outbox.is_idle();
  if (waits == endpoint.waits_for_room) return;
  endpoint.waits_for_room = waits;
  epoll_event event{.events = EPOLLIN | (waits ? EPOLLOUT : 0U), .data = {.u32 = id}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, endpoint.socket.get(), &event);
}

unsigned SocketTransport::drive(EndpointId id) {
  Endpoint& endpoint = at(id);
  if (endpoint.state != Endpoint::State::connected) return 0;
  unsigned frames = 0;
  const Io io = endpoint.inbox.read(endpoint.socket.get(), frames);
  if (io == Io::ended || io == Io::broken) {
    lose(id, io);
    return frames + 1;
  }
  const std::size_t before = outcomes_.size();
  pump(id);
  return frames + static_cast<unsigned>(outcomes_.size() - before);
}

unsigned SocketTransport::progress() noexcept {
  unsigned work = 0;
  if (connected_.size() <= kFewSockets) {
    for (std::size_t i = connected_.size(); i-- > 0;) work += drive(connected_[i]);
  } else {
    std::array<epoll_event, 32> events;
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) work += drive(events[static_cast<std::size_t>(i)].data.u32);
  }
  return outcomes_.empty() && losses_.empty() ? work : work + report_all();
}

/// Reports losses before the operations that end because of them.
unsigned SocketTransport::report_all() {
  const std::vector<Loss> losses = std::exchange(losses_, {});
  for (const Loss& loss : losses) {
    if (owner_ != nullptr) owner_->on_lost(loss.id, loss.why);
  }
  return static_cast<unsigned>(losses.size()) + report(outcomes_, reporting_);
}

void SocketTransport::end_silent(Clock::time_point now) noexcept {
  for (std::size_t i = connected_.size(); i-- > 0;) {
    const EndpointId id = connected_[i];
    Endpoint& endpoint = at(id);
    const auto silent = endpoint.silence.silent_for(endpoint.socket.get(), now);
    if (silent) lose(id, failure(Code::link_lost, Silence::text(*silent)));
  }
}

void SocketTransport::lose(EndpointId id, Io io) {
  if (io == Io::ended) {
    lose(id, failure(Code::peer_lost, "its peer has ended it"));
  } else if (at(id).inbox.lacks_memory()) {
    lose(id, failure(Code::exhausted, "there is no memory for what comes over it"));
  } else {
    lose(id, failure(Code::link_lost, "it broke, or what came over it was not what its peer sent"));
  }
}

void SocketTransport::lose(EndpointId id, const Status& why) {
  if (logger_.enabled(LogLevel::info)) {
    logger_.info(fmt::format("the connection of tcp endpoint {} has ended: {}", id, why.message()));
  }
  disconnect(at(id), Endpoint::State::lost, why.code());
  losses_.push_back({id, why});
}

void SocketTransport::disconnect(Endpoint& endpoint, Endpoint::State state, Code code) {
  if (endpoint.socket) {
    std::erase_if(connected_, [&](EndpointId id) { return endpoints_[id].get() == &endpoint; });
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, endpoint.socket.get(), nullptr);
    // shutdown() ends the connection even if a forked child has a copy of the socket.
    ::shutdown(endpoint.socket.get(), SHUT_RDWR);
    endpoint.socket.reset();
  }
  endpoint.state = state;
  endpoint.lost = code;
  endpoint.outbox.end_all(code);
  endpoint.inbox.end_all(code);
}

void SocketTransport::close(EndpointId id) noexcept {
  Endpoint& endpoint = at(id);
  if (endpoint.state == Endpoint::State::closed) return;
  const Code code = endpoint.lost == Code::ok ? Code::peer_lost : endpoint.lost;
  disconnect(endpoint, Endpoint::State::closed, code);
}

bool SocketTransport::flush(EndpointId id) noexcept {
  Endpoint& endpoint = at(id);
  if (endpoint.lost != Code::ok) return true;
  pump(id);
  if (endpoint.state != Endpoint::State::connected) return endpoint.outbox.is_empty();
  if (!endpoint.outbox.is_empty()) return false;
  // True only if the peer's kernel has acknowledged everything. The peer can then read all data
  // even if this end is closed.
  int unacknowledged = 0;
  return ::ioctl(endpoint.socket.get(), SIOCOUTQ, &unacknowledged) != 0 || unacknowledged == 0;
}

Result<bool> SocketTransport::arm() noexcept { return outcomes_.empty() && losses_.empty(); }

std::vector<PhysicalPath> SocketTransport::paths(EndpointId id) const {
  XYLEM_CHECK(id < endpoints_.size(), id, endpoints_.size());
  return {{"tcp", options_.device}};
}

Traffic SocketTransport::traffic(EndpointId id) const noexcept {
  XYLEM_CHECK(id < endpoints_.size(), id, endpoints_.size());
  return endpoints_[id]->traffic;
}

}  // namespace tcp

Result<std::unique_ptr<Transport>> make_tcp(TcpOptions options, const Logger& logger) {
  return tcp::SocketTransport::create(std::move(options), logger);
}

}  // namespace xylem::transport
