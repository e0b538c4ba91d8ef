// SPDX-License-Identifier: Apache-2.0
//
// ControlNetwork, except for the gather (control_gather.cc).
#include "bootstrap/control_network.h"

#include "xylem/base/check.h"

#include <fmt/format.h>

#include <algorithm>

namespace xylem::runtime {
namespace {

/// How often unacknowledged bytes are checked.
constexpr auto kSilenceCheckPeriod = std::chrono::milliseconds(500);

// What an event of the poller concerns: the connection of a link, the process of a link's peer,
// ControlRequests, or a descriptor of PayloadConnections.
enum class Source : std::uint64_t { connection, process, request, payload };
constexpr std::uint64_t tag_of(Source source, std::size_t index) {
  return (static_cast<std::uint64_t>(source) << 32) | index;
}

Status nonsense(std::string_view what) {
  return failure(Code::internal, fmt::format("it sent {}, which makes no sense", what));
}

}  // namespace

Result<std::unique_ptr<ControlNetwork>> ControlNetwork::create(const Member& self,
                                                               InterfaceChoice choice,
                                                               const Logger& logger) {
  std::unique_ptr<ControlNetwork> network(new ControlNetwork(self, std::move(choice), logger));
  XYLEM_TRY(network->poller_, Poller::create());
  XYLEM_TRY(network->requests_.open());
  XYLEM_TRY(network->poller_.add(network->requests_.fd(), tag_of(Source::request, 0), EPOLLIN));
  return network;
}

ControlNetwork::ControlNetwork(const Member& self, InterfaceChoice choice, Logger logger)
    : self_(self),
      choice_(std::move(choice)),
      logger_(std::move(logger)),
      news_(self.size),
      gathers_(self.rank, self.size) {}

ControlLink* ControlNetwork::find_link(std::uint32_t rank) const noexcept {
  const auto found =
      std::ranges::find_if(links_, [rank](const auto& link) { return link->rank() == rank; });
  return found == links_.end() ? nullptr : found->get();
}

Status ControlNetwork::add_link(UniqueFd fd, const Member& peer, const FrameKeys& keys) {
  auto link = std::make_unique<ControlLink>(std::move(fd), peer, self_.host, keys);
  const std::size_t index = links_.size();
  XYLEM_TRY(poller_.add(link->fd(), tag_of(Source::connection, index), EPOLLIN));
  if (link->process_fd() >= 0) {
    XYLEM_TRY(poller_.add(link->process_fd(), tag_of(Source::process, index), EPOLLIN));
  }
  if (link->is_remote())
    next_silence_check_ = std::min(next_silence_check_, Clock::now() + kSilenceCheckPeriod);
  // A peer that connects after the start has failed receives the reason.
  if (!failure_) link->push(FailedFrame{failure_.code(), failure_.peer(), failure_.message()});
  links_.push_back(std::move(link));
  return {};
}

Status ControlNetwork::drive(int milliseconds) {
  send_outbox();
  flush_links();
  for (const epoll_event& event : poller_.wait(milliseconds)) {
    const std::uint64_t tag = event.data.u64;
    const auto index = static_cast<std::uint32_t>(tag);
    switch (static_cast<Source>(tag >> 32)) {
      case Source::connection:
        if (links_[index]->is_open()) receive(*links_[index]);
        break;
      case Source::process: drain_link(*links_[index], "its process ended"); break;
      case Source::request: requests_.clear_wake(); break;
      case Source::payload:
        if (payload_connections_) payload_connections_->on_event(static_cast<int>(index));
        break;
    }
  }
  check_for_silence();
  progress_payload_connections();
  send_outbox();
  flush_links();
  return is_serving_ ? Status() : failure_;
}

bool ControlNetwork::receive(ControlLink& link, std::string_view how) {
  const auto received = link.receive();
  for (;;) {
    const auto frame = link.frames().next();
    Status heard = frame.status();
    if (frame) {
      const auto& next = *frame;
      if (next) heard = handle_frame(link, *next);
    }
    if (!heard) {
      link_ended(link, heard.message());
      return false;
    }
    if (!frame->has_value()) break;
  }
  if (!received) {
    link_ended(link, how.empty() ? received.status().message() : how);
    return false;
  }
  return *received;
}

void ControlNetwork::drain_link(ControlLink& link, std::string_view how) {
  while (link.is_open() && receive(link, how)) {
  }
  if (link.is_open()) link_ended(link, how);
}

Status ControlNetwork::handle_frame(ControlLink& link, const ControlFrame& frame) {
  if (const auto* const message = std::get_if<MessageFrame>(&frame))
    return handle_message(link, *message);
  if (const auto* const lost = std::get_if<LostFrame>(&frame)) {
    if (lost->rank >= self_.size) return nonsense("the death of a rank that is none");
    declare_lost(lost->rank, lost->how, &link);
  } else if (const auto* const left = std::get_if<LeftFrame>(&frame)) {
    if (left->rank >= self_.size) return nonsense("the goodbye of a rank that is none");
    declare_left(left->rank, &link);
  } else if (const auto* const failed = std::get_if<FailedFrame>(&frame)) {
    if (failure_.is_ok()) {
      failure_ = failure(failed->code, std::string(failed->message), failed->peer);
      broadcast(frame, &link);
    }
  } else if (const auto* const piece = std::get_if<GatherFrame>(&frame)) {
    if (is_serving_) return nonsense("a gather after the start");
    return gathers_.add(link.rank(), *piece);
  } else if (const auto* const invitation = std::get_if<Invitation>(&frame)) {
    if (invitation->inviter >= self_.size || invitation->invitee >= self_.size) {
      return nonsense("an invitation of a rank that is none");
    }
    handle_invitation(link, *invitation);
  }
  return {};
}

Status ControlNetwork::handle_message(const ControlLink& link, const MessageFrame& message) {
  const bool is_to_all = message.to == MessageFrame::kEverybody;
  const bool is_flooded = message.number != 0;
  if (message.origin >= self_.size || (is_to_all ? !is_flooded : message.to >= self_.size))
    return nonsense("a message of or to a rank that is none");
  if (message.origin == self_.rank) return {};
  if (!is_flooded) {
    if (message.to != self_.rank) forward(message);
  } else {
    if (!news_.record_message(message.origin, message.number)) return {};
    if (news_.record_topic(message.topic, Clock::now())) broadcast(message, &link);
  }
  if (is_to_all || message.to == self_.rank)
    events_.emplace_back(Message{message.origin, {message.bytes.begin(), message.bytes.end()}});
  return {};
}

void ControlNetwork::handle_invitation(const ControlLink& link, const Invitation& invitation) {
  if (invitation.inviter == self_.rank) return;
  if (invitation.is_flooded && !news_.record_invitation(invitation.inviter, invitation.number))
    return;
  if (invitation.invitee != self_.rank) {
    return invitation.is_flooded ? broadcast(invitation, &link) : send_invitation(invitation);
  }
  if (!payload_connections_ || has_left_) return;
  payload_connections_->on_invited(invitation);
}

void ControlNetwork::send_invitation(const Invitation& invitation) {
  if (invitation.is_flooded) return broadcast(invitation);
  // If no open link leads towards the invitee, the invitation is dropped: the inviting rank floods
  // it later.
  if (ControlLink* const next = next_towards(invitation.invitee)) next->push(invitation);
}

/// Considers the open links whose peers lie between this rank and `rank` (inclusive), counted
/// upwards in the ring of ranks. Returns the link whose peer is nearest to `rank`; null if there is
/// none.
ControlLink* ControlNetwork::next_towards(std::uint32_t rank) const noexcept {
  ControlLink* best = nullptr;
  std::uint32_t left = (rank + self_.size - self_.rank) % self_.size;
  for (const auto& link : links_) {
    const std::uint32_t from_there = (rank + self_.size - link->rank()) % self_.size;
    if (!link->is_open() || from_there >= left) continue;
    left = from_there;
    best = link.get();
  }
  return best;
}

std::vector<Interface> ControlNetwork::interfaces() const {
  std::vector<Interface> all{choice_.chosen};
  all.insert(all.end(), choice_.others.begin(), choice_.others.end());
  return all;
}

void ControlNetwork::listen_for_payload_at(const SocketAddress& address) {
  if (payload_connections_) payload_connections_->listen_at(address);
}

void ControlNetwork::open_payload_connections(Key key) {
  const std::uint64_t tag = tag_of(Source::payload, 0);
  payload_connections_ = std::make_unique<PayloadConnections>(
      self_, std::move(key), choice_.chosen.address, poller_, tag, logger_);
}

void ControlNetwork::request_connection(std::uint32_t rank) {
  XYLEM_CHECK(rank < self_.size && rank != self_.rank, rank, self_.size);
  requests_.request_connection(rank);
}

void ControlNetwork::progress_payload_connections() {
  if (!payload_connections_ || has_left_) return;
  for (const std::uint32_t rank : requests_.take_wanted()) {
    if (news_.presence(rank) == Presence::here) payload_connections_->request(rank);
  }
  std::vector<Invitation> invitations;
  payload_connections_->tick(Clock::now(), invitations);
  for (const Invitation& one : invitations) send_invitation(one);
  for (PayloadConnection& connection : payload_connections_->take_connections()) {
    events_.emplace_back(std::move(connection));
  }
  for (PayloadConnections::Failed& failed : payload_connections_->take_failed()) {
    events_.emplace_back(std::move(failed));
  }
}

void ControlNetwork::declare_lost(std::uint32_t rank,
                                  std::string_view how,
                                  const ControlLink* from) {
  if (!news_.end(rank, Presence::lost)) return;
  logger_.debug(fmt::format("control: rank {} is lost: {}", rank, how));
  if (failure_.is_ok()) {
    failure_ = failure(Code::peer_lost,
                       fmt::format("rank {} ended during the start: {}", rank, how), rank);
  }
  if (payload_connections_) payload_connections_->forget(rank);
  broadcast(LostFrame{rank, how}, from);
  events_.emplace_back(Lost{rank, std::string(how)});
}

void ControlNetwork::declare_left(std::uint32_t rank, const ControlLink* from) {
  if (!news_.end(rank, Presence::left)) return;
  if (payload_connections_) payload_connections_->forget(rank);
  broadcast(LeftFrame{rank}, from);
  events_.emplace_back(Left{rank});
}

void ControlNetwork::close(ControlLink& link) {
  poller_.remove(link.fd());
  poller_.remove(link.process_fd());
  link.close();
}

void ControlNetwork::link_ended(ControlLink& link, std::string_view how) {
  close(link);
  if (!has_left_) declare_lost(link.rank(), how);
}

void ControlNetwork::broadcast(const ControlFrame& frame, const ControlLink* except) {
  if (has_left_) return;
  for (const auto& link : links_) {
    if (link.get() != except && link->is_open()) link->push(frame);
  }
}

void ControlNetwork::send_outbox() {
  for (const auto& message : requests_.take_messages()) {
    MessageFrame frame{.origin = self_.rank, .topic = message.topic, .bytes = message.bytes};
    if (message.to) frame.to = *message.to;
    if (message.to && !news_.has_any_ended()) {
      forward(frame);
    } else if (news_.record_topic(message.topic, Clock::now())) {
      frame.number = ++sent_;
      broadcast(frame);
    }
  }
}

/// Drops the message if no open link leads towards its addressee.
void ControlNetwork::forward(const MessageFrame& message) {
  ControlLink* const next = has_left_ ? nullptr : next_towards(message.to);
  if (next != nullptr) next->push(message);
}

void ControlNetwork::flush_links() {
  // If a link ends here, a LostFrame is queued on the other links. Sending it may reveal that other
  // links have ended, too. So the loop repeats until no link ends.
  for (bool again = true; again;) {
    again = false;
    for (std::size_t i = 0; i < links_.size(); ++i) {
      ControlLink& link = *links_[i];
      if (!link.is_open()) continue;
      Status status = link.flush();
      const bool blocked = link.queued() > 0;
      if (status && link.set_wants_write(blocked)) {
        status = poller_.change(link.fd(), tag_of(Source::connection, i),
                                EPOLLIN | (blocked ? EPOLLOUT : 0U));
      }
      if (!status) {
        // Nothing is read from a peer that itself reads nothing, since it may send without end.
        const bool is_stuck = link.queued() > ControlLink::kMostQueued;
        is_stuck ? link_ended(link, status.message()) : drain_link(link, status.message());
        again = true;
      }
    }
  }
}

void ControlNetwork::check_for_silence() {
  if (next_silence_check_ == Clock::time_point::max()) return;
  const auto now = Clock::now();
  if (now < next_silence_check_) return;
  next_silence_check_ = now + kSilenceCheckPeriod;
  for (const auto& link : links_) {
    if (!link->is_open() || !link->is_remote()) continue;
    if (const Status status = link->check_silence(now); !status)
      link_ended(*link, status.message());
  }
}

void ControlNetwork::report_failure(const Status& status) {
  if (failure_.is_ok()) failure_ = status;
  broadcast(FailedFrame{status.code(), status.peer(), status.message()});
  flush_links();
}

Clock::time_point ControlNetwork::serve(ControlListener& listener) {
  is_serving_ = true;
  static_cast<void>(drive(0).is_ok());
  while (!events_.empty()) {
    Event event = std::move(events_.front());
    events_.pop_front();
    deliver(event, listener);
  }
  return payload_connections_ ? std::min(next_silence_check_, payload_connections_->due())
                              : next_silence_check_;
}

void ControlNetwork::deliver(Event& event, ControlListener& listener) {
  if (const auto* const message = std::get_if<Message>(&event)) {
    listener.on_message(message->origin, message->bytes);
  } else if (auto* const connection = std::get_if<PayloadConnection>(&event)) {
    listener.on_connected(std::move(*connection));
  } else if (const auto* const failed = std::get_if<PayloadConnections::Failed>(&event)) {
    listener.on_connection_failed(failed->rank, failed->why);
  } else if (const auto* const lost = std::get_if<Lost>(&event)) {
    listener.on_peer_lost(lost->rank, lost->how);
  } else if (const auto* const left = std::get_if<Left>(&event)) {
    listener.on_peer_left(left->rank);
  }
}

void ControlNetwork::flood(ByteSpan message, std::uint64_t topic) {
  XYLEM_CHECK(message.size() <= kMaxMessage, message.size());
  if (self_.size == 1) return;
  requests_.flood(message, topic);
}

void ControlNetwork::send(std::uint32_t rank, ByteSpan message) {
  XYLEM_CHECK(message.size() <= kMaxMessage, message.size());
  XYLEM_CHECK(rank < self_.size && rank != self_.rank, rank, self_.size);
  requests_.send(rank, message);
}

void ControlNetwork::leave(Deadline deadline) {
  if (has_left_) return;
  is_serving_ = true;
  send_outbox();
  std::uint64_t frames = 0;
  for (const auto& link : links_) frames += link->messages_pushed();
  logger_.debug(
      fmt::format("control: sent {} frames with messages to {} neighbours", frames, links_.size()));
  broadcast(LeftFrame{self_.rank});
  static_cast<void>(wait_until_sent(deadline).is_ok());
  has_left_ = true;
  payload_connections_.reset();
  for (const auto& link : links_) {
    if (link->is_open()) link->finish_sending();
  }
  // The kernel resets a connection that is closed while it has unread data. The reset may reach the
  // peer before the LeftFrame. So this rank continues to read until the peers' kernels have
  // acknowledged all data.
  const auto is_settled = [](const auto& link) {
    return !link->is_open() || link->all_acknowledged();
  };
  while (!std::ranges::all_of(links_, is_settled) && !deadline.passed()) {
    static_cast<void>(drive(1).is_ok());
  }
  for (const auto& link : links_) close(*link);
}

}  // namespace xylem::runtime
