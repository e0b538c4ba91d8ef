// SPDX-License-Identifier: Apache-2.0
#include "measure.h"

#include "context.h"
#include "groups/group.h"
#include "xylem/base/copy.h"
#include "xylem/execution/host_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>

namespace xylem::runtime {
namespace {

using collectives::CostModel;
using collectives::LinkCost;

constexpr std::uint64_t kMedium = 64 << 10;
constexpr std::uint64_t kLarge = 1 << 20;
constexpr int kSmallRounds = 100, kSmallRepeats = 30;
constexpr int kLargeRounds = 8, kLargeRepeats = 3;
constexpr std::uint32_t kTag = 0;
/// How long, at most, this rank measures a link within the host, a link between hosts, and its
/// core. The time of a link counts from the end of the first round trip, and a round trip that has
/// begun is completed. The sum of the three is the 0.3 s that docs/configuration.md states.
constexpr std::chrono::milliseconds kLocalBudget{80}, kRemoteBudget{200}, kCoreBudget{20};
static_assert(kNeverPull.value == transport::kAnySize);

double in_microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

/// Submits a call and waits for it. If the call has not ended at the deadline, the Watch ends it,
/// and finds out which rank does not answer.
Status complete(Group& world, Call&& call, Deadline deadline) {
  const Work work = world.submit(std::move(call));
  work.set_timeout(deadline.left());
  Status status = work.wait();
  if (status.code() != Code::timed_out) return status;
  return failure(
      Code::timed_out,
      fmt::format("the start took longer than XYLEM_START_TIMEOUT: {}", status.message()),
      status.peer());
}

/// Sent by the rank that measures to its partner: which message the partner must send back next.
struct Order {
  std::uint64_t bytes = 0;  ///< 0: none, the exchange ends.
  std::uint64_t pull_from = transport::kAnySize;
};

/// Two ranks that exchange messages. One rank measures. It alone knows how long messages take, so
/// it decides about each message and about the end. The other rank carries out its Orders.
class Pair {
 public:
  Pair(Context& context, Group& world, std::uint32_t partner, Deadline deadline)
      : context_(context), world_(world), partner_(partner), deadline_(deadline) {}

  bool follows() const { return partner_ < world_.spec().rank; }

  /// Half of the time of a round trip of the smallest message, in microseconds. The Order itself is
  /// this message.
  Result<double> round_trip() {
    write({sizeof(Order), transport::kAnySize});
    const auto begin = Clock::now();
    XYLEM_TRY(transfer(CallKind::send, order_, sizeof(Order)));
    XYLEM_TRY(transfer(CallKind::recv, order_, sizeof(Order)));
    return in_microseconds(Clock::now() - begin) / 2;
  }

  /// Half of the time of a round trip of a message of `bytes` bytes, in microseconds. With
  /// `pull_from`, the receiver copies messages from this size on out of the sender's process.
  Result<double> round_trip(std::uint64_t bytes, std::uint64_t pull_from = transport::kAnySize) {
    write({bytes, pull_from});
    XYLEM_TRY(transfer(CallKind::send, order_, sizeof(Order)));
    context_.pull_from(pull_from);
    const auto begin = Clock::now();
    XYLEM_TRY(transfer(CallKind::send, data_, bytes));
    XYLEM_TRY(transfer(CallKind::recv, data_, bytes));
    return in_microseconds(Clock::now() - begin) / 2;
  }

  /// Ends the exchange.
  Status end() {
    write({});
    return transfer(CallKind::send, order_, sizeof(Order));
  }

  /// Carries out the partner's Orders, until the partner ends the exchange.
  Status follow() {
    for (;;) {
      XYLEM_TRY(transfer(CallKind::recv, order_, sizeof(Order)));
      Order order;
      std::memcpy(&order, order_->data(), sizeof order);
      if (order.bytes == 0) return {};
      const bool is_small = order.bytes == sizeof(Order);
      if (!is_small) {
        context_.pull_from(order.pull_from);
        XYLEM_TRY(transfer(CallKind::recv, data_, order.bytes));
      }
      XYLEM_TRY(transfer(CallKind::send, is_small ? order_ : data_, order.bytes));
    }
  }

 private:
  /// Memory that outlives the exchange if a transport still uses it after an error.
  using Memory = std::shared_ptr<std::vector<std::byte>>;

  void write(const Order& order) { std::memcpy(order_->data(), &order, sizeof order); }

  Status transfer(CallKind kind, const Memory& memory, std::uint64_t bytes) {
    Call call;
    call.kind = kind;
    call.type = DataType::uint8;
    call.count = std::min<std::uint64_t>(bytes, memory->size());
    call.peer = partner_;
    call.tag = kTag;
    call.input = memory->data();
    call.output = memory->data();
    call.owned = memory;
    return complete(world_, std::move(call), deadline_);
  }

  Context& context_;
  Group& world_;
  std::uint32_t partner_;
  Deadline deadline_;
  Memory order_ = std::make_shared<std::vector<std::byte>>(sizeof(Order));
  Memory data_ = std::make_shared<std::vector<std::byte>>(kLarge);
};

/// How a bandwidth was obtained, for the log.
enum class Origin : std::uint8_t { measured, estimated, assumed };

std::string_view text(Origin origin) {
  switch (origin) {
    case Origin::measured: return "measured";
    case Origin::estimated: return "estimated by one message, since more take too long";
    case Origin::assumed: return "assumed, since messages take too long to measure it";
  }
  return {};
}

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

/// Measures the bandwidth, as far as the budget allows. Returns how the value was obtained.
Result<Origin> measure_bandwidth(Pair& pair, LinkCost& cost, Deadline budget) {
  // TCP sends its first 64 KiB in three round trips or more.
  constexpr double kSlowStart = 4;
  const auto left = [&] { return in_microseconds(budget.left()); };
  if (2 * cost.alpha_us * kSlowStart > left()) return Origin::assumed;
  const auto rate = [&](std::uint64_t bytes, double took) {
    return static_cast<double>(bytes) / std::max(took - cost.alpha_us, 1.0) / 1e3;
  };
  XYLEM_TRY(const double first, pair.round_trip(kMedium));
  cost.bandwidth_GBps = rate(kMedium, first);
  // A warm-up and at least one measured round trip must fit into the budget: four messages.
  constexpr double kRounds = 4;
  const bool is_fast = kRounds * first * kLarge / kMedium <= left();
  const std::uint64_t bytes = is_fast ? kLarge : kMedium;
  if (is_fast) XYLEM_TRY(pair.round_trip(bytes));
  if (2 * first > left()) return Origin::estimated;
  XYLEM_TRY(const double took,
            quickest(kLargeRounds, kLargeRepeats, budget, [&] { return pair.round_trip(bytes); }));
  cost.bandwidth_GBps = rate(bytes, took);
  return Origin::measured;
}

/// The speed of a local kernel in GB/s: the quickest of a few passes over 1 MiB.
template <typename Pass>
double rate(Pass pass) {
  Quickest quickest;
  const Deadline budget = Deadline::after(kCoreBudget / 2);
  for (int rounds = kLargeRounds; rounds > 0 && quickest.near() < kLargeRepeats; --rounds) {
    const auto begin = Clock::now();
    pass();
    quickest.add(in_microseconds(Clock::now() - begin));
    if (budget.passed()) break;
  }
  return static_cast<double>(kLarge) / std::max(quickest.best(), 0.1) / 1e3;
}

void measure_core(CostModel& model) {
  std::vector<float> a(kLarge / sizeof(float), 1.0F), b = a;
  const auto kernel = execution::reduce_kernel(RedOp::sum, DataType::float32);
  const void* sources[] = {a.data(), b.data()};
  model.compute.reduce_GBps = rate([&] { kernel(a.data(), sources, 2, a.size(), {}); });
  model.compute.copy_GBps = rate([&] { copy_bytes(a.data(), b.data(), kLarge); });
}

/// The rank with which this rank exchanges messages, if any. Within a host all ranks measure at the
/// same time, in pairs, since later calls use all of the host's cores at the same time, too.
/// Between hosts, only rank 0 and the first rank of another host exchange messages.
std::optional<std::uint32_t> partner(const CostModel& model, const Group& world, bool local) {
  const std::uint32_t rank = world.spec().rank;
  if (local) {
    std::vector<std::uint32_t> beside;
    for (std::uint32_t other = 0; other < world.spec().size(); ++other) {
      if (model.host[other] == model.host[rank]) beside.push_back(other);
    }
    const auto place = std::ranges::find(beside, rank) - beside.begin();
    const auto with = static_cast<std::size_t>(place ^ 1);
    return with < beside.size() ? std::optional(beside[with]) : std::nullopt;
  }
  for (std::uint32_t other = 1; other < world.spec().size(); ++other) {
    if (model.host[other] == model.host[0]) continue;
    return rank == 0 ? std::optional(other) : rank == other ? std::optional(0U) : std::nullopt;
  }
  return std::nullopt;
}

/// What rank 0 broadcasts to the other ranks.
struct Constants {
  LinkCost local, remote;
  double reduce_GBps = 0, copy_GBps = 0, step_us = 0;
  std::uint64_t pull_from = transport::kAnySize;
};

Status share(Group& world, Tuning& tuning, Deadline deadline) {
  CostModel& model = tuning.model;
  Constants constants{model.local,
                      model.remote,
                      model.compute.reduce_GBps,
                      model.compute.copy_GBps,
                      model.step_us,
                      tuning.pull_from.value_or(transport::kAnySize)};
  Call call;
  call.collective = collectives::Collective::broadcast;
  call.type = DataType::uint8;
  call.count = sizeof constants;
  call.input = call.output = &constants;
  XYLEM_TRY(complete(world, std::move(call), deadline));
  model.local = constants.local;
  model.remote = constants.remote;
  model.compute.reduce_GBps = constants.reduce_GBps;
  model.compute.copy_GBps = constants.copy_GBps;
  model.step_us = constants.step_us;
  tuning.pull_from = constants.pull_from;
  return {};
}

/// Finds the size from which pulling (the receiver copies directly out of the sender's process) is
/// quicker than copying through slots of shared memory, and the bandwidth of pulling. Requires that
/// the bandwidth through slots has been measured. Returns whether the budget sufficed.
Result<bool> measure_pull(Pair& pair, Tuning& tuning, Deadline budget) {
  constexpr std::array<std::uint64_t, 3> kSizes{kLarge, 256 << 10, kMedium};
  // Copying through slots works on every system, so pulling has to be clearly quicker.
  constexpr double kClearly = 0.9;
  LinkCost& local = tuning.model.local;
  tuning.pull_from = transport::kAnySize;
  for (const std::uint64_t bytes : kSizes) {
    const auto half_trip = [&](std::uint64_t pull_from) -> Result<double> {
      XYLEM_TRY(pair.round_trip(bytes, pull_from));  // A warm-up.
      return quickest(kLargeRounds, kLargeRepeats, budget,
                      [&] { return pair.round_trip(bytes, pull_from); });
    };
    double through_slots = local.alpha_us + static_cast<double>(bytes) / local.bandwidth_GBps / 1e3;
    if (bytes != kLarge) {
      XYLEM_TRY(through_slots, half_trip(transport::kAnySize));
    }
    XYLEM_TRY(const double pulled, half_trip(bytes));
    if (budget.passed()) return false;
    if (pulled >= kClearly * through_slots) return true;
    tuning.pull_from = bytes;
    if (bytes == kLarge) {
      local.bandwidth_GBps =
          static_cast<double>(bytes) / std::max(pulled - local.alpha_us, 1.0) / 1e3;
    }
  }
  return true;
}

/// True if this rank's machine has fewer cores than ranks.
bool shares_cores(const CostModel& model, std::uint32_t rank) {
  const std::uint32_t machine = model.machine_of(rank), cores = model.cores_of(machine);
  return cores > 0 && std::ranges::count(model.machine, machine) > cores;
}

struct Measured {
  Origin bandwidth = Origin::measured;
  bool is_complete = true;  ///< False if the budget did not suffice.
};

/// Measures the link to the partner, within or between hosts.
Result<Measured> measure_link(const Context& context, Pair& pair, bool local, Tuning& tuning) {
  LinkCost& cost = local ? tuning.model.local : tuning.model.remote;
  // The first round trip makes the connection. It also waits for the partner, which may still be
  // exchanging messages in another pair.
  XYLEM_TRY(pair.round_trip());
  const auto longest = local ? kLocalBudget : kRemoteBudget;
  const Deadline budget = Deadline::after(longest);
  XYLEM_TRY(cost.alpha_us, quickest(kSmallRounds, kSmallRepeats, Deadline::after(longest / 4),
                                    [&] { return pair.round_trip(); }));
  Measured measured;
  XYLEM_TRY(measured.bandwidth, measure_bandwidth(pair, cost, budget));
  measured.is_complete = measured.bandwidth == Origin::measured;
  if (local && measured.is_complete && !context.config().pull_from) {
    XYLEM_TRY(measured.is_complete, measure_pull(pair, tuning, budget));
  }
  XYLEM_TRY(pair.end());
  return measured;
}

/// Returns whether this rank has measured all that it should measure.
Result<bool> measure_links(Context& context, Group& world, Tuning& tuning, Deadline deadline) {
  CostModel& model = tuning.model;
  bool is_complete = true;
  for (const bool local : {true, false}) {
    const auto other = partner(model, world, local);
    if (!other) continue;
    Pair pair(context, world, *other, deadline);
    if (pair.follows()) {
      XYLEM_TRY(pair.follow());
      continue;
    }
    XYLEM_TRY(const Measured measured, measure_link(context, pair, local, tuning));
    is_complete = is_complete && measured.is_complete;
    LinkCost& cost = local ? model.local : model.remote;
    if (world.spec().rank == 0) {
      context.logger.info(
          fmt::format("start: a message {} takes {:.3g} us; bandwidth {:.3g} GB/s, {}",
                      local ? "within a host" : "between hosts", cost.alpha_us, cost.bandwidth_GBps,
                      text(measured.bandwidth)));
    }
    // If ranks share cores, the sender's writing and the receiver's reading do not overlap, so the
    // measured time is the sum of both. The cost model counts writing and reading separately, so it
    // needs the bandwidth of one of them.
    if (local && shares_cores(model, world.spec().rank)) cost.bandwidth_GBps *= 2;
  }
  return is_complete;
}

}  // namespace

Tuning default_tuning(const Config& config, std::vector<std::uint32_t> hosts) {
  Tuning tuning;
  tuning.model = collectives::assumed_costs();
  tuning.model.slice_bytes = config.slice.value;
  tuning.model.host = std::move(hosts);
  return tuning;
}

Result<Tuning> measure(Context& context, Group& world, Tuning tuning, Deadline deadline) {
  const std::string& source = context.config().tuning;
  if (source == "off" || world.spec().size() == 1) return tuning;
  const bool use_file = source != "measure", is_asked = !context.config().pull_from;
  // Only rank 0 reads the file. The broadcast informs the other ranks whether the file has an entry
  // for this hardware.
  std::uint8_t known = 0;
  if (use_file && world.spec().rank == 0) {
    XYLEM_TRY(const auto loaded, load_tuning(source, tuning, deadline));
    if (loaded) tuning = *loaded, known = 1;
  }
  Call call;
  call.collective = collectives::Collective::broadcast;
  call.type = DataType::uint8;
  call.count = 1;
  call.input = call.output = &known;
  XYLEM_TRY(complete(world, std::move(call), deadline));
  if (known == 0) {
    XYLEM_TRY(const bool is_complete, measure_links(context, world, tuning, deadline));
    if (world.spec().rank == 0) measure_core(tuning.model);
    // Measurements are not saved if XYLEM_PULL_FROM was set, since they then depend on this
    // setting. They are not saved either if some constants could not be measured.
    if (use_file && is_asked && is_complete && world.spec().rank == 0) {
      const Status saved = save_tuning(source, tuning, deadline);
      if (!saved) context.logger.warn(saved.message());
    }
  }
  XYLEM_TRY(share(world, tuning, deadline));
  return tuning;
}

}  // namespace xylem::runtime
