// SPDX-License-Identifier: Apache-2.0
//
// ControlJoin: how a rank meets the others and connects to its neighbours.
//
//   publishing ──card in the store──► reading ──cards of higher neighbours──► connecting
//     ──every neighbour proven──► gathering (nothing, from all) ──► joined
//
// Of two neighbours the lower rank calls and the higher answers, so that each pair has one
// connection. Both prove that they know the job's secret together with a number that rank 0 drew
// for this start and left in the store. So nobody who cannot read the store can join, even if no
// secret was set. Strangers at the listening port are sent away and cost nothing but their
// handshake.
//
// A start that fails, fails at every rank. A StartStore tells all ranks of the first failure. Other
// stores know nothing of failures; then the rank that has found one stays for a moment to tell
// those who connect to it.
#pragma once

#include "bootstrap/attendance.h"
#include "bootstrap/card.h"
#include "bootstrap/control_network.h"
#include "bootstrap/greeter.h"
#include "bootstrap/handshake.h"
#include "bootstrap/launcher.h"
#include "bootstrap/poller.h"
#include "bootstrap/refusals.h"
#include "bootstrap/start_store.h"
#include "xylem/base/clock.h"
#include "xylem/base/log.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace xylem::runtime {

class ControlJoin {
 public:
  ControlJoin(const Placement& placement,
              Store& store,
              const Logger& logger,
              Deadline deadline,
              Dialect dialect = {});

  Result<std::unique_ptr<ControlPlane>> run(const InterfaceChoice& choice);

 private:
  /// A neighbour with a higher rank, which this rank has to call.
  struct Callee {
    SocketAddress address;
    Clock::time_point next_try = Clock::now();
    bool is_being_called = false;
  };

  Status meet(const InterfaceChoice& choice);
  Status open(const InterfaceChoice& choice);
  Status publish(const SocketAddress& address);
  Status read_cards();
  Status read_card(std::uint32_t rank);
  Result<ByteVector> explained(Result<ByteVector> value);
  Status connect_all();
  /// Ends the start because of `why`. Returns the failure that all ranks get.
  Status give_up(Status why);
  void tell_callers(const Status& why);
  Status turn();
  bool is_anyone_awaited() const;
  void start_calls();
  void call(std::uint32_t rank, Callee& callee);
  Status take_over(Greeting greeting);
  Status on_refused(std::optional<std::uint32_t> callee, const Status& why);
  Status explain_timeout();
  int wait_ms() const;
  std::string key_of(std::string_view what, std::uint32_t rank) const;
  std::string place_of(std::uint32_t rank) const;

  const Placement& placement_;
  Store& store_;
  StartStore* const start_;  ///< The same store if it is a StartStore; otherwise null.
  const Logger& logger_;
  Deadline deadline_;
  Dialect dialect_;
  Member self_;
  Key key_;  ///< A random key until the session is known.
  Attendance attendance_;
  std::vector<std::uint32_t> neighbours_;
  std::unique_ptr<ControlNetwork> network_;
  Poller poller_;
  UniqueFd listener_;
  std::map<std::uint32_t, Callee> callees_;
  Refusals refusals_;
  Greeter greeter_;
  Status last_refusal_;
};

}  // namespace xylem::runtime
