// SPDX-License-Identifier: Apache-2.0
//
// MeasuringPair: two ranks that exchange messages at start, to measure the link between them. One
// rank measures. It alone knows how long messages take, so it decides about each message and about
// the end. The other rank carries out its orders.
#pragma once

#include "calls/calls.h"
#include "xylem/base/clock.h"
#include "xylem/base/status.h"
#include "xylem/runtime/work.h"
#include "xylem/transport/transport.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

namespace xylem::runtime {

class Group;
struct Context;

inline double in_microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

/// Submits a call and waits for it. If the call has not ended at the deadline, the Watch ends it,
/// and finds out which rank does not answer.
Status complete(Group& world, Call&& call, Deadline deadline);
Status complete(const Work& work, Deadline deadline);
/// Copies `bytes` bytes of rank 0 to all ranks. Collective.
Status broadcast(Group& world, void* data, std::uint64_t bytes, Deadline deadline);
/// Copies the `bytes` bytes at `mine` of each rank to `all`, in the order of the ranks. Collective.
Status all_gather(
    Group& world, const void* mine, std::uint64_t bytes, void* all, Deadline deadline);

/// The shortest time of several rounds. The shortest time is used because other load on the machine
/// is temporary and must not affect the constants. If several rounds take about the same time, the
/// shortest time is not due to chance.
class Quickest {
 public:
  void add(double took) {
    constexpr double kNear = 1.05;
    best_ = std::min(best_, took);
    if (took * kNear < near_to_) near_to_ = took, near_ = 0;
    if (took <= near_to_ * kNear) ++near_;
  }
  double best() const { return best_; }
  /// How many rounds took about as long as the quickest one, which counts, too.
  int near() const { return near_; }

 private:
  double best_ = std::numeric_limits<double>::max();
  double near_to_ = best_;
  int near_ = 0;
};

/// The time of the quickest of several rounds. There are at most `rounds` of them and at least one.
/// The rounds end once `repeats` of them took about as long as the quickest, or when the budget is
/// used up.
template <typename Round>
Result<double> quickest(int rounds, int repeats, Deadline budget, Round round) {
  Quickest quickest;
  do {
    XYLEM_TRY(const double took, round());
    quickest.add(took);
  } while (--rounds > 0 && quickest.near() < repeats && !budget.passed());
  return quickest.best();
}

class MeasuringPair {
 public:
  /// A message has at most `longest` bytes. All arguments must outlive the pair.
  MeasuringPair(Context& context,
                Group& world,
                std::uint32_t partner,
                std::uint64_t longest,
                Deadline deadline);

  /// Whether this rank carries out the orders of its partner.
  bool follows() const;

  // For the rank that measures. Times are in microseconds.

  /// Half of the time of a round trip of the smallest message.
  Result<double> round_trip();
  /// The least time that this rank has needed to send the message of a round trip: the time of its
  /// core.
  double send_us() const { return send_us_; }
  /// Half of the time of a round trip of a message of `bytes` bytes. With `pull_from`, the receiver
  /// copies messages from this size on out of the sender's process.
  Result<double> round_trip(std::uint64_t bytes, std::uint64_t pull_from = transport::kAnySize);
  /// The time in which both ranks send `bytes` bytes to each other at once, in slices, as in
  /// collectives.
  Result<double> exchange(std::uint64_t bytes);
  /// The time from the first of `count` small messages that are sent at once until the partner's
  /// answer to the last.
  Result<double> stream(std::uint32_t count);
  /// Ends the exchange.
  Status end();

  /// For the other rank: carries out the partner's orders, until the partner ends the exchange.
  Status follow();

 private:
  /// What the partner must do next.
  enum class Action : std::uint32_t { end, answer, exchange, receive_many };
  struct Order {
    Action action = Action::end;
    std::uint32_t count = 0;  ///< Of messages, for receive_many.
    std::uint64_t bytes = 0;
    std::uint64_t pull_from = transport::kAnySize;
  };
  /// Memory that outlives the exchange if a transport still uses it after an error.
  using Memory = std::shared_ptr<std::vector<std::byte>>;

  Status send(const Order& order);
  Status carry_out(const Order& order);
  Call message(CallKind kind, const Memory& memory, std::uint64_t bytes) const;
  Status transfer(CallKind kind, const Memory& memory, std::uint64_t bytes);
  Status transfer_both_ways(std::uint64_t bytes);
  Status transfer_many(CallKind kind, std::uint32_t count);
  Status complete_all(std::span<const Work> works) const;

  Context& context_;
  Group& world_;
  std::uint32_t partner_;
  Deadline deadline_;
  std::uint64_t slice_bytes_;
  double send_us_ = std::numeric_limits<double>::max();
  Memory order_ = std::make_shared<std::vector<std::byte>>(sizeof(Order));
  Memory sent_, received_;
};

}  // namespace xylem::runtime
