// SPDX-License-Identifier: Apache-2.0
//
// Greeter: the connections, incoming and outgoing, whose peers have not proven the job's secret
// yet. Incoming connections may come from strangers (processes that do not belong to the job), so
// their number and the time for their handshakes are limited.
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

/// True if a handshake failed because the other end does not belong to this job.
bool is_stranger(const Status& why) noexcept;

class Greeter {
 public:
  /// `poller` watches the connections. Its events carry `tag` and the descriptor of the connection.
  Greeter(Poller& poller, std::uint64_t tag, Refusals& refusals)
      : poller_(&poller), tag_(tag), refusals_(&refusals) {}

  /// Accepts some of the connections that wait at a listening socket. `expected` is the number of
  /// job members that may be connecting at the same time.
  Status accept_some(int listener,
                     const std::function<Handshake()>& handshake,
                     std::size_t expected);
  /// Adds an outgoing connection to a rank. False if the poller cannot watch the connection.
  bool call(UniqueFd fd, Handshake handshake, std::uint32_t rank);

  /// A greeting that has ended. If `why` is OK, the peer has proven the job's secret; otherwise
  /// `why` is the error.
  struct Ended {
    Greeting greeting;
    Status why;
  };
  /// Continues the greeting whose connection is `fd`, after an event of the poller. Returns nothing
  /// if the greeting has not ended, or if no greeting has this descriptor.
  std::optional<Ended> advance(int fd);
  void drop_slow_strangers();
  /// Closes outgoing connections whose peers have not answered within the time limit, which is the
  /// same as for incoming connections. Once a peer has answered, its connection is kept, since the
  /// peer may consider the connection complete.
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
