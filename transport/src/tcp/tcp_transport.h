// SPDX-License-Identifier: Apache-2.0
//
// The tcp transport: endpoints, each with a socket, an outbox and an inbox, and one matcher for all
// endpoints.
//
//   fresh ─first send─► wanted ──adopt()──► connected ──end of the connection──► lost
//    └──────────────adopt()───────────────────▲  └──────────close()──────────► closed
#pragma once

#include "matcher.h"
#include "outcome.h"
#include "tcp/inbox.h"
#include "tcp/outbox.h"
#include "xylem/base/log.h"
#include "xylem/base/silence.h"
#include "xylem/base/unique_fd.h"
#include "xylem/transport/tcp.h"

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace xylem::transport::tcp {

class SocketTransport final : public Transport, private Connections {
 public:
  static Result<std::unique_ptr<Transport>> create(TcpOptions options, const Logger& logger);
  SocketTransport(const SocketTransport&) = delete;
  SocketTransport& operator=(const SocketTransport&) = delete;
  ~SocketTransport() override;

  std::string_view name() const noexcept override { return "tcp"; }
  Capabilities capabilities() const noexcept override {
    return {.withdraws = true, .checks_tags = true};
  }
  std::span<const std::byte> address() const noexcept override { return address_; }
  Result<EndpointId> connect(std::span<const std::byte> address) override;
  Connections* connections() noexcept override { return this; }
  Posted send(EndpointId to, Tag tag, ConstRegion source, Operation& operation) noexcept override;
  Posted recv(
      Tag tag, Tag mask, Region target, Operation& operation, Tag* sender_tag) noexcept override;
  void cancel(Operation& operation) noexcept override;
  std::size_t discard(Tag tag, Tag mask) noexcept override;
  unsigned progress() noexcept override;
  bool flush(EndpointId id) noexcept override;
  Result<bool> arm() noexcept override;
  int wake_fd() const noexcept override { return epoll_.get(); }
  void close(EndpointId id) noexcept override;
  std::vector<PhysicalPath> paths(EndpointId id) const override;
  Traffic traffic(EndpointId id) const noexcept override;

 private:
  struct Endpoint {
    enum class State : std::uint8_t { fresh, wanted, connected, lost, closed };

    Endpoint(EndpointId id, Matcher& matcher, Outcomes& outcomes, std::uint64_t ahead)
        : outbox(outcomes, ahead), inbox(id, matcher, outcomes, outbox) {}

    State state = State::fresh;
    Code lost = Code::ok;  ///< The code with which sends fail; ok while the endpoint is usable.
    UniqueFd socket;
    bool waits_for_room = false;  ///< True while epoll watches the socket for EPOLLOUT.
    Traffic traffic;
    Silence silence;
    Outbox outbox;
    Inbox inbox;
  };
  struct Loss {
    EndpointId id;
    Status why;
  };

  SocketTransport(TcpOptions options, Logger logger);

  void set_owner(ConnectionOwner* owner) noexcept override { owner_ = owner; }
  Status adopt(EndpointId id, Connection connection) override;
  void end_silent(Clock::time_point now) noexcept override;
  bool was_connected(EndpointId id) const noexcept override {
    return endpoints_[id]->state != Endpoint::State::fresh &&
           endpoints_[id]->state != Endpoint::State::wanted;
  }

  Endpoint& at(EndpointId id);
  unsigned drive(EndpointId id);
  void pump(EndpointId id);
  void watch(EndpointId id);
  void lose(EndpointId id, Io io);
  void lose(EndpointId id, const Status& why);
  void disconnect(Endpoint& endpoint, Endpoint::State state, Code code);
  unsigned report_all();

  const TcpOptions options_;
  const Logger logger_;
  ConnectionOwner* owner_ = nullptr;
  UniqueFd epoll_;
  std::array<std::byte, 24> address_{};
  Matcher matcher_;
  Outcomes outcomes_, reporting_;
  std::vector<Loss> losses_;
  /// Pointers, so that an endpoint keeps its address: its inbox refers to its outbox.
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::vector<EndpointId> connected_;
};

}  // namespace xylem::transport::tcp
