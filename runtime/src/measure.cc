// SPDX-License-Identifier: Apache-2.0
#include "measure.h"

#include "context.h"
#include "group.h"
#include "kernels/reduce.h"
#include "xylem/base/copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <optional>

namespace xylem::runtime {
namespace {

using collectives::CostModel;
using collectives::LinkCost;

constexpr std::uint64_t kSmall = 8;
constexpr std::uint64_t kLarge = 1 << 20;
constexpr int kSmallRounds = 100;
constexpr int kLargeRounds = 8;
constexpr std::uint32_t kTag = 0;
static_assert(kNeverPull.value == transport::kAnySize);

double in_microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

/// Submits a call and waits for it. At the deadline, ends everything pending before it returns.
Status complete(Group& world, Call&& call, Deadline deadline) {
  const Work work = world.submit(std::move(call));
  Status status = work.wait_for(deadline.left());
  if (status.code() != Code::timed_out || work.test()) return status;
  (void)world.abort("the start took longer than XYLEM_START_TIMEOUT");
  (void)work.wait();
  return failure(Code::timed_out,
                 "measuring the links took longer than XYLEM_START_TIMEOUT; a rank stopped after "
                 "it had come");
}

/// The other rank of a ping-pong, and the deadline.
struct Partner {
  std::uint32_t rank = 0;
  bool first = false;  ///< True if this rank sends first, and measures.
  Deadline deadline;
};

Status transfer(Group& world,
                CallKind kind,
                const Partner& partner,
                const std::shared_ptr<std::vector<std::byte>>& data) {
  Call call;
  call.kind = kind;
  call.type = DataType::uint8;
  call.count = data->size();
  call.peer = partner.rank;
  call.tag = kTag;
  call.input = data->data();
  call.output = data->data();
  call.owned = data;
  return complete(world, std::move(call), partner.deadline);
}

/// Half of the quickest round trip, in microseconds; meaningful at the rank that sends first. The
/// quickest is taken because other load on the machine passes and must not enter the constants.
Result<double> ping_pong(Group& world, const Partner& partner, std::uint64_t bytes, int rounds) {
  const auto data = std::make_shared<std::vector<std::byte>>(bytes);
  double best = std::numeric_limits<double>::max();
  for (int round = 0; round <= rounds; ++round) {  // round 0 warms up
    const auto begin = Clock::now();
    XYLEM_TRY(transfer(world, partner.first ? CallKind::send : CallKind::recv, partner, data));
    XYLEM_TRY(transfer(world, partner.first ? CallKind::recv : CallKind::send, partner, data));
    if (round > 0) best = std::min(best, in_microseconds(Clock::now() - begin) / 2);
  }
  return best;
}

Result<LinkCost> measure_link(Group& world, const Partner& partner) {
  XYLEM_TRY(const double small, ping_pong(world, partner, kSmall, kSmallRounds));
  XYLEM_TRY(const double large, ping_pong(world, partner, kLarge, kLargeRounds));
  return LinkCost{small, static_cast<double>(kLarge) / std::max(large - small, 1.0) / 1e3};
}

/// The speed of a local kernel in GB/s: the best of a few passes over 1 MiB.
template <typename Pass>
double rate(Pass pass) {
  double best = 1e-3;
  for (int round = 0; round < 8; ++round) {
    const auto begin = Clock::now();
    pass();
    best = std::max(best, static_cast<double>(kLarge) /
                              std::max(in_microseconds(Clock::now() - begin), 0.1) / 1e3);
  }
  return best;
}

void measure_core(CostModel& model) {
  std::vector<float> a(kLarge / sizeof(float), 1.0F), b = a;
  const auto kernel = reduce_kernel(RedOp::sum, DataType::float32);
  const void* sources[] = {a.data(), b.data()};
  model.compute.reduce_GBps = rate([&] { kernel(a.data(), sources, 2, a.size(), {}); });
  model.compute.copy_GBps = rate([&] { copy_bytes(a.data(), b.data(), kLarge); });
}

/// The rank with which this rank exchanges messages, if any. On a host all ranks do so at once, in
/// pairs, since they will share its cores in the same way later. Between hosts, only rank 0 and the
/// first rank of another host do.
std::optional<std::uint32_t> partner(const CostModel& model, const Group& world, bool local) {
  const std::uint32_t rank = world.rank();
  if (local) {
    std::vector<std::uint32_t> beside;
    for (std::uint32_t other = 0; other < world.size(); ++other) {
      if (model.host[other] == model.host[rank]) beside.push_back(other);
    }
    const auto place = std::ranges::find(beside, rank) - beside.begin();
    const auto with = static_cast<std::size_t>(place ^ 1);
    return with < beside.size() ? std::optional(beside[with]) : std::nullopt;
  }
  for (std::uint32_t other = 1; other < world.size(); ++other) {
    if (model.host[other] == model.host[0]) continue;
    return rank == 0 ? std::optional(other) : rank == other ? std::optional(0U) : std::nullopt;
  }
  return std::nullopt;
}

/// What rank 0 tells the other ranks.
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

/// Finds the size from which pulling is quicker than copying through slots, and the bandwidth then.
Status measure_pull(Context& context, Group& world, const Partner& partner, Tuning& tuning) {
  constexpr std::array<std::uint64_t, 3> kSizes{kLarge, 256 << 10, 64 << 10};
  // Copying through slots works on every system, so pulling has to be clearly quicker.
  constexpr double kClearly = 0.9;
  bool has_won = true;
  tuning.pull_from = transport::kAnySize;
  // All sizes are measured even after pulling has lost: both ends must exchange the same messages,
  // whatever each of them measures.
  for (const std::uint64_t bytes : kSizes) {
    context.pull_from(transport::kAnySize);
    XYLEM_TRY(const double through_slots, ping_pong(world, partner, bytes, kLargeRounds));
    context.pull_from(bytes);
    XYLEM_TRY(const double pulled, ping_pong(world, partner, bytes, kLargeRounds));
    has_won = has_won && pulled < kClearly * through_slots;
    if (!has_won) continue;
    tuning.pull_from = bytes;
    if (bytes != kLarge) continue;
    LinkCost& local = tuning.model.local;
    local.bandwidth_GBps =
        static_cast<double>(bytes) / std::max(pulled - local.alpha_us, 1.0) / 1e3;
  }
  return {};
}

/// True if this rank's host has fewer cores than ranks.
bool shares_cores(const CostModel& model, std::uint32_t rank) {
  const std::uint32_t host = model.host.empty() ? 0 : model.host[rank];
  const std::uint32_t cores = host < model.host_cores.size() ? model.host_cores[host] : 0;
  return cores > 0 && std::ranges::count(model.host, host) > cores;
}

Status measure_links(Context& context, Group& world, Tuning& tuning, Deadline deadline) {
  CostModel& model = tuning.model;
  for (const bool local : {true, false}) {
    const auto other = partner(model, world, local);
    if (!other) continue;
    const Partner with{*other, world.rank() < *other, deadline};
    XYLEM_TRY(const auto cost, measure_link(world, with));
    (local ? model.local : model.remote) = cost;
    if (local && !context.config().pull_from) {
      XYLEM_TRY(measure_pull(context, world, with, tuning));
    }
    // On shared cores, writing and reading do not overlap, so the measured time contains both. The
    // estimate counts each of them by itself, and needs the bandwidth of one.
    if (local && shares_cores(model, world.rank())) model.local.bandwidth_GBps *= 2;
  }
  return {};
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
  if (source == "off" || world.size() == 1) return tuning;
  const bool use_file = source != "measure", is_asked = !context.config().pull_from;
  // Only rank 0 reads the file; the broadcast tells the others whether it had an entry.
  std::uint8_t known = 0;
  if (use_file && world.rank() == 0) {
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
    XYLEM_TRY(measure_links(context, world, tuning, deadline));
    if (world.rank() == 0) measure_core(tuning.model);
    // Links measured with a given XYLEM_PULL_FROM do not describe the machine, so they are not
    // saved.
    if (use_file && is_asked && world.rank() == 0) {
      const Status saved = save_tuning(source, tuning, deadline);
      if (!saved) context.logger.warn(saved.message());
    }
  }
  XYLEM_TRY(share(world, tuning, deadline));
  return tuning;
}

}  // namespace xylem::runtime
