// SPDX-License-Identifier: Apache-2.0
#include "measure.h"

#include "context.h"
#include "groups/group.h"
#include "measure_network.h"
#include "measuring_pair.h"
#include "network_costs.h"
#include "xylem/base/copy.h"
#include "xylem/execution/host_kernels.h"
#include "xylem/transport/seal.h"

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
/// How long, at most, this rank measures the link within its host, and its core. The time of the
/// link counts from the end of the first round trip, and a round trip that has begun is completed.
/// With what measure_network() takes, this is the 0.35 s that docs/configuration.md states.
constexpr std::chrono::milliseconds kLocalBudget{80}, kCoreBudget{20};
static_assert(kNeverPull.value == transport::kAnySize);

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

/// Measures the bandwidth, as far as the budget allows. Returns how the value was obtained.
Result<Origin> measure_bandwidth(MeasuringPair& pair, LinkCost& cost, Deadline budget) {
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

/// The rate at which a core sends, or receives, messages between hosts over TCP. The kernel's part
/// is assumed; that of the protection of payload is measured.
double tcp_core_rate(transport::Protection protection, transport::Cipher cipher) {
  // Half of the CPU time of `tcp:off` for both ends (docs/benchmarks.md, "Between hosts").
  constexpr double kKernelNsPerByte = 0.4;
  if (protection == transport::Protection::off) return 1 / kKernelNsPerByte;
  transport::Seal seal(cipher, transport::SealKey());
  // A frame at a time, as in messages.
  std::vector<std::byte> frame(32 << 10);
  std::array<std::byte, transport::Seal::kTagBytes> tag;
  const bool encrypts = protection == transport::Protection::encrypt;
  const double sealed_GBps = rate([&] {
    for (std::uint64_t done = 0; done < kLarge; done += frame.size()) {
      if (encrypts) seal.close({}, frame, frame.data(), tag.data());
      else seal.close(frame, {}, nullptr, tag.data());
    }
  });
  return 1 / (kKernelNsPerByte + 1 / sealed_GBps);
}

/// Sets CostModel::remote_core_GBps, by what carries payload between most pairs of ranks on
/// different hosts. The bytes of RDMA take no time of a core.
void set_core_rate(const Context& context, CostModel& model) {
  const auto& peers = context.wires->hosts().peers();
  const std::string& transport = context.config().transport;
  const auto with_rdma = static_cast<double>(std::ranges::count(peers, true, &PeerFacts::has_rdma));
  const auto ranks = static_cast<double>(peers.size());
  const bool is_mostly_rdma = 2 * with_rdma * (with_rdma - 1) > ranks * (ranks - 1);
  const bool is_rdma = transport == "ucx-rdma" || (transport == "auto" && is_mostly_rdma);
  model.remote_core_GBps = 0;
  if (is_rdma || std::ranges::max(model.host) == 0) return;
  const auto cipher = std::ranges::all_of(peers, &PeerFacts::has_aes)
                          ? transport::Cipher::aes256_gcm
                          : transport::Cipher::chacha20_poly1305;
  const auto protection =
      transport == "ucx-tcp" ? transport::Protection::off : context.config().protection;
  model.remote_core_GBps = tcp_core_rate(protection, cipher);
}

/// The rank of this host with which this rank exchanges messages, if any. All ranks of a host
/// measure at the same time, in pairs, since later calls use all of its cores at the same time,
/// too.
std::optional<std::uint32_t> partner(const CostModel& model, const Group& world) {
  const std::uint32_t rank = world.spec().rank;
  std::vector<std::uint32_t> beside;
  for (std::uint32_t other = 0; other < world.spec().size(); ++other) {
    if (model.host[other] == model.host[rank]) beside.push_back(other);
  }
  const auto place = std::ranges::find(beside, rank) - beside.begin();
  const auto with = static_cast<std::size_t>(place ^ 1);
  return with < beside.size() ? std::optional(beside[with]) : std::nullopt;
}

/// What a rank has measured within its host.
struct LocalSample {
  LinkCost cost;
  std::uint64_t pull_from = transport::kAnySize;
  bool is_measured = false;
  bool is_complete = true;  ///< False if the budget did not suffice.
};

/// What rank 0 broadcasts to the other ranks, before the samples of the network.
struct Constants {
  LinkCost local;
  double reduce_GBps = 0, copy_GBps = 0, step_us = 0, remote_core_GBps = 0;
  std::uint64_t pull_from = transport::kAnySize;
};

/// All ranks take over the constants of rank 0.
Status share(const Context& context, Group& world, Tuning& tuning, Deadline deadline) {
  CostModel& model = tuning.model;
  Constants constants{
      model.local,   model.compute.reduce_GBps, model.compute.copy_GBps,
      model.step_us, model.remote_core_GBps,    tuning.pull_from.value_or(transport::kAnySize)};
  XYLEM_TRY(broadcast(world, &constants, sizeof constants, deadline));
  model.local = constants.local;
  model.compute.reduce_GBps = constants.reduce_GBps;
  model.compute.copy_GBps = constants.copy_GBps;
  model.step_us = constants.step_us;
  model.remote_core_GBps = constants.remote_core_GBps;
  tuning.pull_from = constants.pull_from;
  tuning.network.resize(std::size_t{std::ranges::max(model.host)} + 1);
  XYLEM_TRY(broadcast(world, tuning.network.data(), tuning.network.size() * sizeof(NetworkSample),
                      deadline));
  set_network(model, tuning.network, context.wires->hosts().rails());
  return {};
}

/// Finds the size from which pulling (the receiver copies directly out of the sender's process) is
/// quicker than copying through slots of shared memory, and the bandwidth of pulling. Requires that
/// the bandwidth through slots has been measured. Returns whether the budget sufficed.
Result<bool> measure_pull(MeasuringPair& pair, Tuning& tuning, Deadline budget) {
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

/// Measures the link to the partner.
Status measure_link(const Context& context,
                    MeasuringPair& pair,
                    Tuning& tuning,
                    LocalSample& sample) {
  LinkCost& cost = tuning.model.local;
  // The first round trip makes the connection. It also waits for the partner, which may still be
  // exchanging messages in another pair.
  XYLEM_TRY(pair.round_trip());
  const Deadline budget = Deadline::after(kLocalBudget);
  XYLEM_TRY(cost.alpha_us, quickest(kSmallRounds, kSmallRepeats, Deadline::after(kLocalBudget / 4),
                                    [&] { return pair.round_trip(); }));
  XYLEM_TRY(const Origin bandwidth, measure_bandwidth(pair, cost, budget));
  sample.is_complete = bandwidth == Origin::measured;
  if (sample.is_complete && !context.config().pull_from) {
    XYLEM_TRY(sample.is_complete, measure_pull(pair, tuning, budget));
  }
  context.logger.debug(fmt::format("start: bandwidth within the host {}", text(bandwidth)));
  return pair.end();
}

/// Measures within the hosts, and sets the constants. Returns whether everything was measured.
Result<bool> measure_hosts(Context& context, Group& world, Tuning& tuning, Deadline deadline) {
  CostModel& model = tuning.model;
  LocalSample mine;
  if (const auto other = partner(model, world)) {
    MeasuringPair pair(context, world, *other, kLarge, deadline);
    if (pair.follows()) {
      XYLEM_TRY(pair.follow());
    } else {
      XYLEM_TRY(measure_link(context, pair, tuning, mine));
      mine.is_measured = true;
      mine.cost = model.local;
      mine.pull_from = tuning.pull_from.value_or(transport::kAnySize);
    }
  }
  // If ranks share cores, the sender's writing and the receiver's reading do not overlap, so the
  // measured time is the sum of both. The cost model counts writing and reading separately, so it
  // needs the bandwidth of one of them.
  if (shares_cores(model, world.spec().rank)) mine.cost.bandwidth_GBps *= 2;
  std::vector<LocalSample> all(world.spec().size());
  XYLEM_TRY(all_gather(world, &mine, sizeof mine, all.data(), deadline));
  const auto first = std::ranges::find(all, true, &LocalSample::is_measured);
  if (first == all.end()) return true;
  model.local = first->cost;
  tuning.pull_from = first->pull_from;
  if (world.spec().rank != 0) return first->is_complete;
  context.logger.info(
      fmt::format("start: a message within a host takes {:.3g} us; bandwidth {:.3g} GB/s{}",
                  model.local.alpha_us, model.local.bandwidth_GBps,
                  first->is_complete ? "" : ", of few messages, since they take long"));
  return first->is_complete;
}

/// Logs what rank 0 knows of the network.
void log_network(const Context& context, const Tuning& tuning) {
  const CostModel& model = tuning.model;
  if (model.network.empty()) {
    if (tuning.network.size() < 2) return;
    context.logger.info(fmt::format(
        "start: a message between hosts takes {:.3g} us; bandwidth {:.3g} GB/s, assumed, since "
        "messages take too long to measure it",
        model.remote_send_us + model.remote.alpha_us + model.remote_receive_us,
        model.remote.bandwidth_GBps));
    return;
  }
  const auto& [port_of, rates] = model.network.front();
  const auto slowest = std::ranges::min_element(rates);
  std::string text = fmt::format(
      "start: a message between hosts takes {:.3g} us of a core to send, {:.3g} us to receive, and "
      "{:.3g} us in between; the fastest of {} ports sends {:.3g} GB/s",
      model.remote_send_us, model.remote_receive_us, model.remote.alpha_us, rates.size(),
      std::ranges::max(rates));
  constexpr double kNoticeable = 0.8;
  if (*slowest < kNoticeable * std::ranges::max(rates)) {
    const auto port = static_cast<std::uint32_t>(slowest - rates.begin());
    const auto rank = std::ranges::find(port_of, port) - port_of.begin();
    text +=
        fmt::format(", {} only {:.3g} GB/s",
                    context.wires->hosts().peers()[static_cast<std::size_t>(rank)].host, *slowest);
  }
  for (std::size_t level = 1; level < model.network.size(); ++level) {
    text += fmt::format("; {} groups of hosts share {:.3g} GB/s or more to others",
                        model.network[level].rate_GBps.size(),
                        std::ranges::min(model.network[level].rate_GBps));
  }
  context.logger.info(text);
}

}  // namespace

Tuning default_tuning(const Config& config, const Hosts& hosts) {
  Tuning tuning;
  tuning.model = collectives::assumed_costs();
  tuning.model.slice_bytes = config.slice.value;
  tuning.model.host = hosts.indices();
  tuning.model.machine = hosts.machines();
  tuning.model.machine_cores = hosts.machine_cores();
  tuning.ports = fmt::format("{}{}, protection {}", hosts.ports(), config.transport,
                             static_cast<int>(config.protection));
  return tuning;
}

Result<Tuning> measure(Context& context, Group& world, Tuning tuning, Deadline deadline) {
  const std::string& source = context.config().tuning;
  if (source == "off" || world.spec().size() == 1) return tuning;
  const bool use_file = source != "measure", is_asked = !context.config().pull_from;
  // Only rank 0 reads the file. The broadcast informs the other ranks whether the file has an entry
  // for this hardware and network.
  std::uint8_t known = 0;
  const bool is_first = world.spec().rank == 0;
  if (use_file && is_first) {
    XYLEM_TRY(const auto loaded, load_tuning(source, tuning, deadline));
    if (loaded) tuning = *loaded, known = 1;
  }
  XYLEM_TRY(broadcast(world, &known, 1, deadline));
  if (known == 0) {
    XYLEM_TRY(const bool has_hosts, measure_hosts(context, world, tuning, deadline));
    XYLEM_TRY(tuning.network, measure_network(context, world, tuning.model, deadline));
    if (is_first) measure_core(tuning.model);
    // Measurements are not saved if XYLEM_PULL_FROM was set, since they then depend on this
    // setting. They are not saved either if some constants could not be measured.
    if (use_file && is_asked && is_first && has_hosts && is_measured(tuning.network)) {
      const Status saved = save_tuning(source, tuning, deadline);
      if (!saved) context.logger.warn(saved.message());
    }
  }
  if (is_first) set_core_rate(context, tuning.model);
  XYLEM_TRY(share(context, world, tuning, deadline));
  if (is_first) log_network(context, tuning);
  return tuning;
}

}  // namespace xylem::runtime
