// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/meetings.h"

#include "bootstrap/socket.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace xylem::runtime {
namespace {

/// An invitation that nobody has answered is sent again after this.
constexpr auto kPatience = std::chrono::seconds(1);
/// So many attempts may fail at this end.
constexpr std::uint32_t kMostTries = 5;

}  // namespace

Meetings::Meetings(const Member& self,
                   Key key,
                   SocketAddress local,
                   Poller& poller,
                   std::uint64_t tag,
                   const Logger& logger)
    : self_(self),
      key_(std::move(key)),
      local_(local),
      poller_(&poller),
      tag_(tag),
      logger_(logger),
      refusals_(logger),
      greeter_(poller, tag, refusals_),
      met_(self.size, false) {}

void Meetings::ask(std::uint32_t rank) {
  if (met_[rank] || greeter_.is_calling(rank) || invited_.contains(rank)) return;
  invited_[rank] = {Clock::now(), 0};
}

Status Meetings::listen() {
  if (listener_) return {};
  XYLEM_TRY(UniqueFd listener, listen_on(local_.with_port(0)));
  XYLEM_TRY(address_, SocketAddress::of_socket(listener.get()));
  XYLEM_TRY(
      poller_->add(listener.get(), tag_ | static_cast<std::uint32_t>(listener.get()), EPOLLIN));
  listener_ = std::move(listener);
  return {};
}

void Meetings::stop_listening() {
  if (!listener_) return;
  poller_->remove(listener_.get());
  listener_.reset();
  greeter_.drop_strangers();
}

void Meetings::stop_listening_if_done() {
  if (invited_.empty()) stop_listening();
}

void Meetings::note_failure(std::uint32_t rank, const Status& why) {
  logger_.info(fmt::format("no connection to rank {} yet: {}", rank, why.message()));
  if (++tries_[rank] == kMostTries) failed_.push_back({rank, why});
}

void Meetings::tick(Clock::time_point now, std::vector<Invitation>& invitations) {
  greeter_.drop_slow_strangers();
  for (auto& [rank, invited] : invited_) {
    if (invited.next > now) continue;
    invited.next = now + kPatience;
    if (const Status status = listen(); !status) {
      note_failure(rank, status);
      continue;
    }
    invitations.push_back(
        {self_.rank, rank, ++number_, invited.times++ > 0, address_.host(), address_.port()});
  }
}

Clock::time_point Meetings::due() const noexcept {
  auto due = greeter_.is_empty() ? Clock::time_point::max() : Clock::now() + kPatience;
  for (const auto& [rank, invited] : invited_) due = std::min(due, invited.next);
  return due;
}

void Meetings::on_invited(const Invitation& invitation) {
  const std::uint32_t host = invitation.host;
  if (met_[host] || greeter_.is_calling(host)) return;
  if (invited_.contains(host)) {
    if (self_.rank < host) return;  // It will hear of ours.
    invited_.erase(host);
    stop_listening_if_done();
  }
  const auto address = SocketAddress::parse(invitation.address, invitation.port);
  auto socket = address ? start_connect(*address) : Result<UniqueFd>(address.status());
  const Handshake handshake(Handshake::Side::caller, key_, self_);
  // It will ask again.
  if (!socket) return note_failure(host, socket.status());
  greeter_.call(*std::move(socket), handshake, host);
}

void Meetings::on_event(int fd) {
  if (fd == listener_.get()) {
    const Status accepted = greeter_.accept_some(
        fd, [this] { return Handshake(Handshake::Side::callee, key_, self_); }, invited_.size());
    if (accepted) return;
    // A port that is left open would be reported without end. It is opened again with the next
    // invitation.
    stop_listening();
    for (const auto& [rank, invited] : invited_) note_failure(rank, accepted);
    return;
  }
  auto ended = greeter_.advance(fd);
  if (!ended) return;
  if (ended->why) return on_proven(std::move(ended->greeting));
  const auto callee = ended->greeting.callee();
  if (callee) {
    logger_.info(
        fmt::format("the connection to rank {} was not made: {}", *callee, ended->why.message()));
  }
}

void Meetings::on_proven(Greeting greeting) {
  const std::uint32_t rank = greeting.peer().rank;
  const auto callee = greeting.callee();
  const bool is_expected = callee ? *callee == rank : invited_.contains(rank);
  if (!is_expected || met_[rank]) {
    refusals_.note(fmt::format("it comes as rank {}, which was not asked to", rank));
    return;
  }
  met_[rank] = true;
  invited_.erase(rank);
  encounters_.push_back({rank, greeting.take_fd(), greeting.keys()});
  stop_listening_if_done();
}

void Meetings::forget(std::uint32_t rank) {
  invited_.erase(rank);
  greeter_.hang_up(rank);
  stop_listening_if_done();
}

}  // namespace xylem::runtime
