// SPDX-License-Identifier: Apache-2.0
//
// Greeter: the connections, incoming and outgoing, whose peers have not proven the job's secret
// yet. Incoming connections may come from strangers, so their number and their time are limited.
#pragma once

#include "bootstrap/greeting.h"
#include "bootstrap/poller.h"
#include "bootstrap/refusals.h"
#include "xylem/base/status.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>

namespace xylem::runtime {

/// True if a handshake failed because the other side is not of this job.
bool is_stranger(const Status& why) noexcept;

class Greeter {
 public:
  /// `poller` watches the connections. Its events carry `tag` and the descriptor of the connection.
  Greeter(Poller& poller, std::uint64_t tag, Refusals& refusals)
      : poller_(&poller), tag_(tag), refusals_(&refusals) {}

  /// Accepts some of the connections that wait at a listening socket. `expected` is how many
  /// members may be among them at a time.
  Status accept_some(int listener,
                     const std::function<Handshake()>& handshake,
                     std::size_t expected);
  /// Adds an outgoing connection to a rank. False if it cannot be watched.
  bool call(UniqueFd fd, Handshake handshake, std::uint32_t rank);

  /// A greeting that has ended: the peer is proven, or `why` is the reason why it is not.
  struct Ended {
    Greeting greeting;
    Status why;
  };
  /// Continues a greeting for which the poller has an event. Returns nothing while it has not
  /// ended, or if no greeting uses the descriptor.
  std::optional<Ended> advance(int fd);
  void drop_slow_strangers();
  /// Ends outgoing connections that were not answered within the time limit of strangers. Those
  /// that were answered continue, since the other end may consider them complete.
  void drop_slow_calls();
  /// Ends the outgoing connection to a rank.
  void hang_up(std::uint32_t rank);
  bool is_calling(std::uint32_t rank) const;
  bool is_empty() const noexcept { return greetings_.empty(); }
  /// Ends all incoming connections.
  void drop_strangers();

 private:
  using Greetings = std::map<int, Greeting>;

  std::uint64_t tag_of(int fd) const noexcept { return tag_ | static_cast<std::uint32_t>(fd); }
  void drop(Greetings::iterator entry);
  void drop_oldest_stranger();
  std::size_t strangers() const;
  template <typename Predicate>
  void drop_if(const Predicate& is_dropped) {
    for (auto entry = greetings_.begin(); entry != greetings_.end();) {
      const auto current = entry++;
      if (is_dropped(current->second)) drop(current);
    }
  }

  Poller* poller_;
  std::uint64_t tag_;
  Refusals* refusals_;
  Greetings greetings_;  ///< The key is the descriptor of the connection.
};

}  // namespace xylem::runtime
