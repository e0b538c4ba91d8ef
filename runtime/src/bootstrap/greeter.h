// SPDX-License-Identifier: Apache-2.0
//
// Greeter: the connections that have not proven themselves yet, those that came in and those that
// were made. Strangers among the former cost nothing but their handshake: so many may be about it,
// and only for so long.
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

/// Whether a handshake failed since the other side is not of this job.
bool is_stranger(const Status& why) noexcept;

class Greeter {
 public:
  /// Connections are watched by `poller`, under `tag` and their descriptor.
  Greeter(Poller& poller, std::uint64_t tag, Refusals& refusals)
      : poller_(&poller), tag_(tag), refusals_(&refusals) {}

  /// Takes the connections that wait at a listening socket, some in one go; `expected` of them may
  /// be members at a time.
  Status accept_some(int listener,
                     const std::function<Handshake()>& handshake,
                     std::size_t expected);
  /// A connection on its way to a rank. False if it cannot be watched.
  bool call(UniqueFd fd, Handshake handshake, std::uint32_t rank);

  /// A greeting that is over: proven, or why it is not.
  struct Ended {
    Greeting greeting;
    Status why;
  };
  /// Goes on with one of which the poller has told; of others nothing.
  std::optional<Ended> advance(int fd);
  void drop_slow_strangers();
  /// Ends calls that nobody has answered for as long. One that has been answered goes on: the other
  /// end may count it as made.
  void drop_slow_calls();
  /// Ends a call to a rank.
  void hang_up(std::uint32_t rank);
  bool is_calling(std::uint32_t rank) const;
  bool is_empty() const noexcept { return greetings_.empty(); }
  /// Ends those that came in.
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
  Greetings greetings_;  ///< By descriptor.
};

}  // namespace xylem::runtime
