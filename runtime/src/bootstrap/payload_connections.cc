// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/payload_connections.h"

#include "bootstrap/socket.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace xylem::runtime {
namespace {

/// An unanswered invitation is sent again after kPatience. This interval then doubles each time, up
/// to kLongestPatience.
constexpr auto kPatience = std::chrono::seconds(1);
constexpr auto kLongestPatience = std::chrono::seconds(8);
/// After this many invitations to a rank, the next ones are flooded.
constexpr std::uint32_t kFloodAfter = 2;
/// After this number of failed attempts to listen or connect at this end, the failure is reported.
constexpr std::uint32_t kMostTries = 5;

}  // namespace

PayloadConnections::PayloadConnections(const Member& self,
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
      connected_(self.size, false) {}

void PayloadConnections::request(std::uint32_t rank) {
  if (connected_[rank] || invitees_.contains(rank)) return;
  // If this rank is already connecting to `rank`, its own invitation is sent later, in case the
  // attempt to connect fails.
  const auto first = greeter_.is_calling(rank) ? Clock::now() + kPatience : Clock::now();
  invitees_[rank] = {first, 0};
}

Status PayloadConnections::listen() {
  if (listener_) return {};
  XYLEM_TRY(UniqueFd listener, listen_on(local_.with_port(0)));
  XYLEM_TRY(address_, SocketAddress::of_socket(listener.get()));
  XYLEM_TRY(
      poller_->add(listener.get(), tag_ | static_cast<std::uint32_t>(listener.get()), EPOLLIN));
  listener_ = std::move(listener);
  return {};
}

void PayloadConnections::stop_listening() {
  if (!listener_) return;
  poller_->remove(listener_.get());
  listener_.reset();
  greeter_.drop_strangers();
}

void PayloadConnections::stop_listening_if_done() {
  if (invitees_.empty()) stop_listening();
}

void PayloadConnections::note_failure(std::uint32_t rank, const Status& why) {
  logger_.info(fmt::format("no connection to rank {} yet: {}", rank, why.message()));
  if (++tries_[rank] == kMostTries) failed_.push_back({rank, why});
}

void PayloadConnections::tick(Clock::time_point now, std::vector<Invitation>& invitations) {
  greeter_.drop_slow_strangers();
  greeter_.drop_slow_calls();
  for (auto& [rank, invited] : invitees_) {
    if (invited.next > now) continue;
    invited.next = now + std::min<Clock::duration>(kPatience * (1 << std::min(invited.times, 3U)),
                                                   kLongestPatience);
    if (const Status status = listen(); !status) {
      note_failure(rank, status);
      continue;
    }
    const bool is_flooded = invited.times >= kFloodAfter;
    ++invited.times;
    invitations.push_back(
        {self_.rank, rank, ++number_, is_flooded, address_.host(), address_.port()});
  }
}

Clock::time_point PayloadConnections::due() const noexcept {
  auto due = greeter_.is_empty() ? Clock::time_point::max() : Clock::now() + kPatience;
  for (const auto& [rank, invited] : invitees_) due = std::min(due, invited.next);
  return due;
}

void PayloadConnections::on_invited(const Invitation& invitation) {
  const std::uint32_t inviter = invitation.inviter;
  // An outgoing connection in progress is never replaced, since the inviting rank may consider it
  // complete already. If it fails, the Greeter removes it, and a later invitation is accepted.
  if (connected_[inviter] || greeter_.is_calling(inviter)) return;
  if (invitees_.contains(inviter)) {
    // The other rank will receive this rank's invitation, which takes precedence.
    if (self_.rank < inviter) return;
    invitees_.erase(inviter);
    stop_listening_if_done();
  }
  const auto address = SocketAddress::parse(invitation.address, invitation.port);
  auto socket = address ? start_connect(*address) : Result<UniqueFd>(address.status());
  const Handshake handshake(Handshake::Side::caller, key_, self_);
  // The inviting rank will send its invitation again, so this rank need not retry by itself.
  if (!socket) return note_failure(inviter, socket.status());
  fail_early(socket->get());
  keep_alive(socket->get());
  greeter_.call(*std::move(socket), handshake, inviter);
}

void PayloadConnections::on_event(int fd) {
  if (fd == listener_.get()) {
    const Status accepted = greeter_.accept_some(
        fd, [this] { return Handshake(Handshake::Side::callee, key_, self_); }, invitees_.size());
    if (accepted) return;
    // The connection could not be accepted and stays pending, so the poller would report it without
    // end. So the port is closed; the next invitation opens a port again.
    stop_listening();
    for (const auto& [rank, invited] : invitees_) note_failure(rank, accepted);
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

void PayloadConnections::on_proven(Greeting greeting) {
  const std::uint32_t rank = greeting.peer().rank;
  const auto callee = greeting.callee();
  const bool is_expected = callee ? *callee == rank : invitees_.contains(rank);
  if (!is_expected || connected_[rank]) {
    refusals_.note(fmt::format("it comes as rank {}, which was not asked to", rank));
    return;
  }
  connected_[rank] = true;
  tries_.erase(rank);
  // Keepalive detects a broken path even if nothing is sent.
  keep_alive(greeting.fd());
  invitees_.erase(rank);
  connections_.push_back({rank, greeting.take_fd(), greeting.keys()});
  stop_listening_if_done();
}

std::vector<PayloadConnections::Failed> PayloadConnections::take_failed() {
  std::erase_if(failed_, [this](const Failed& failed) { return connected_[failed.rank]; });
  return std::exchange(failed_, {});
}

void PayloadConnections::forget(std::uint32_t rank) {
  invitees_.erase(rank);
  tries_.erase(rank);
  greeter_.hang_up(rank);
  stop_listening_if_done();
}

}  // namespace xylem::runtime
