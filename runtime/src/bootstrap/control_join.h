// SPDX-License-Identifier: Apache-2.0
//
// ControlJoin: how a rank finds the other ranks through the store and connects to its neighbours.
//
//   publishing ──card in the store──► reading ──cards of higher neighbours──► connecting
//     ──every neighbour proven──► gathering (no data, as a barrier) ──► joined
//
// Of two neighbours the lower rank connects (it is the caller) and the higher rank accepts (it is
// the callee), so that each pair has one connection. Both prove that they know the job's secret and
// the session, a random number that rank 0 has put into the store for this start. So a process that
// cannot read the store cannot join, even if no secret was set. A stranger (a process that does not
// belong to the job) that connects to the listening port is refused in the handshake.
//
// If the start fails at one rank, it fails at all ranks. A StartStore passes the first failure to
// all ranks. With any other store, the rank that has detected a failure keeps its port open for a
// second, and reports the failure to each rank that connects.
#pragma once
#include "bootstrap/card.h"
#include "bootstrap/control_network.h"
#include "bootstrap/greeter.h"
#include "bootstrap/handshake.h"
#include "bootstrap/launcher.h"
#include "bootstrap/poller.h"
#include "bootstrap/rank_set.h"
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
  /// A neighbour with a higher rank, to which this rank has to connect.
  struct Callee {
    SocketAddress address;
    Clock::time_point next_try = Clock::now();
    bool is_being_called = false;
  };

  Status connect_ranks(const InterfaceChoice& choice);
  Status open(const InterfaceChoice& choice);
  Status publish(const SocketAddress& address);
  Status read_cards();
  Status read_card(std::uint32_t rank);
  Result<ByteVector> explained(Result<ByteVector> value);
  Status connect_all();
  /// Fails the start of all ranks, for the reason `why`. Returns the failure that all ranks report.
  Status abandon(Status why);
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
  StartStore* const start_;  ///< `store_` as a StartStore; null if it is not one.
  const Logger& logger_;
  Deadline deadline_;
  Dialect dialect_;
  Member self_;
  Key key_;  ///< Random until publish() has derived it from the secret and the session.
  RankSet joined_;
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
