// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/greeter.h"

#include "bootstrap/socket.h"

#include <algorithm>
#include <utility>

namespace xylem::runtime {
namespace {

/// Time limit for the handshake of an incoming connection, and for the first answer on an outgoing
/// connection.
constexpr auto kProvingTime = std::chrono::seconds(10);
/// How many incoming connections may wait for proof of the job's secret at a time, in addition to
/// one for each member that is expected.
constexpr std::size_t kMostStrangers = 64;
/// How many connections accept_some() accepts at most, so that a flood of connections does not
/// delay members.
constexpr int kMostAccepted = 64;

}  // namespace

bool is_stranger(const Status& why) noexcept {
  return why.code() == Code::unsupported || why.code() == Code::cancelled;
}

Status Greeter::accept_some(int listener,
                            const std::function<Handshake()>& handshake,
                            std::size_t expected) {
  for (int i = 0; i < kMostAccepted; ++i) {
    XYLEM_TRY(UniqueFd fd, accept_from(listener));
    if (!fd) return {};
    if (strangers() >= expected + kMostStrangers) drop_oldest_stranger();
    Greeting greeting(std::move(fd), handshake(), {});
    XYLEM_TRY(poller_->add(greeting.fd(), tag_of(greeting.fd()), EPOLLIN));
    greetings_.emplace(greeting.fd(), std::move(greeting));
  }
  return {};
}

bool Greeter::call(UniqueFd fd, Handshake handshake, std::uint32_t rank) {
  Greeting greeting(std::move(fd), std::move(handshake), rank);
  if (!poller_->add(greeting.fd(), tag_of(greeting.fd()), EPOLLOUT)) return false;
  greetings_.emplace(greeting.fd(), std::move(greeting));
  return true;
}

std::optional<Greeter::Ended> Greeter::advance(int fd) {
  const auto entry = greetings_.find(fd);
  if (entry == greetings_.end()) return std::nullopt;
  const auto wanted = entry->second.advance();
  Status why = wanted.status();
  if (wanted && *wanted != Greeting::Want::nothing) {
    why = poller_->change(fd, tag_of(fd), *wanted == Greeting::Want::input ? EPOLLIN : EPOLLOUT);
    if (why) return std::nullopt;
  }
  Ended ended{std::move(entry->second), std::move(why)};
  poller_->remove(fd);
  greetings_.erase(entry);
  if (!ended.greeting.callee() && is_stranger(ended.why)) refusals_->note(ended.why.message());
  return ended;
}

void Greeter::drop(Greetings::iterator entry) {
  poller_->remove(entry->first);
  greetings_.erase(entry);
}

void Greeter::drop_oldest_stranger() {
  // A member of the job sends its preamble immediately after it connects. So the oldest connection
  // without a preamble is most likely a stranger's, and is dropped. If all connections have sent a
  // preamble, the oldest connection is dropped.
  const auto goes_before = [](const Greeting& a, const Greeting& b) {
    return std::pair(a.is_greeted(), a.since()) < std::pair(b.is_greeted(), b.since());
  };
  auto oldest = greetings_.end();
  for (auto entry = greetings_.begin(); entry != greetings_.end(); ++entry) {
    if (entry->second.callee()) continue;
    if (oldest == greetings_.end() || goes_before(entry->second, oldest->second)) oldest = entry;
  }
  if (oldest == greetings_.end()) return;
  refusals_->note("too many say nothing");
  drop(oldest);
}

void Greeter::drop_slow_strangers() {
  const auto latest = Clock::now() - kProvingTime;
  drop_if([&](const Greeting& one) { return !one.callee() && one.since() < latest; });
}

void Greeter::drop_slow_calls() {
  const auto latest = Clock::now() - kProvingTime;
  drop_if([&](const Greeting& one) {
    return one.callee() && !one.is_greeted() && one.since() < latest;
  });
}

void Greeter::drop_strangers() {
  drop_if([](const Greeting& one) { return !one.callee(); });
}

void Greeter::hang_up(std::uint32_t rank) {
  drop_if([&](const Greeting& one) { return one.callee() == rank; });
}

bool Greeter::is_calling(std::uint32_t rank) const {
  return std::ranges::any_of(greetings_,
                             [&](const auto& entry) { return entry.second.callee() == rank; });
}

/// Number of incoming connections. It includes those of members that have not proven the job's
/// secret yet.
std::size_t Greeter::strangers() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(greetings_, [](const auto& entry) { return !entry.second.callee(); }));
}

}  // namespace xylem::runtime
