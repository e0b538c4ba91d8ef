// SPDX-License-Identifier: Apache-2.0
#include "calls/plans.h"

#include "progress/token_trace.h"
#include "xylem/base/hash.h"
#include "xylem/collectives/planner.h"
#include "xylem/execution/compile_for_stream.h"
#include "xylem/execution/device_kernels.h"
#include "xylem/execution/host_kernels.h"
#include "xylem/transport/views.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <utility>

namespace xylem::runtime {

using collectives::Collective;
using collectives::mapped_planner;
using collectives::Shape;
using execution::compile;
using execution::Fusion;
using execution::Program;
using execution::ProgramOptions;

namespace {

constexpr std::size_t kKeptPlans = 64;
/// The size assumed for an all_to_all_v when its plan is chosen. Its real sizes differ from rank to
/// rank, and all ranks must choose the same plan.
constexpr std::uint64_t kUnknownBytes = 64 * 1024;

/// The size in bytes for which the plan is chosen. It is the same on all ranks.
std::uint64_t agreed_bytes(const Call& call) noexcept {
  if (!call.is_uneven()) return call.count * size_of(call.type);
  if (call.has_private_counts()) return kUnknownBytes;
  const auto& counts = call.input_counts.empty() ? call.output_counts : call.input_counts;
  std::uint64_t sum = 0;
  for (const std::uint64_t count : counts) sum += count;
  return sum / std::max<std::uint64_t>(1, counts.size()) * size_of(call.type);
}

collectives::Counts counts_of(const Call& call) noexcept {
  collectives::Counts counts{.count = call.count,
                             .element_bytes = static_cast<std::uint32_t>(size_of(call.type))};
  if (call.is_uneven()) {
    counts.input_counts = call.input_counts;
    counts.output_counts = call.output_counts;
  }
  return counts;
}

bool same_call(const CallRecord& a, const Call& call) noexcept {
  return a.collective == call.collective && a.type == call.type && a.op == call.op.op &&
         a.root == call.root && a.count == call.count;
}

/// The algorithm that XYLEM_ALGORITHM names for a collective. `setting` is its value, such as
/// "ring" or "all_reduce=ring,all_gather=bruck".
std::string_view forced_algorithm(std::string_view setting, Collective collective) noexcept {
  std::string_view general;
  while (!setting.empty()) {
    const auto comma = setting.find(',');
    const std::string_view item = setting.substr(0, comma);
    setting = comma == std::string_view::npos ? std::string_view() : setting.substr(comma + 1);
    const auto equals = item.find('=');
    if (equals == std::string_view::npos) {
      // A name without a collective applies to all collectives that have a planner of this name.
      if (collectives::find_planner(collective, item) != nullptr ||
          item == mapped_planner(collective).name) {
        general = item;
      }
    } else if (item.substr(0, equals) == name(collective)) {
      return item.substr(equals + 1);
    }
  }
  return general;
}

Plan::Variant variant_of(const Call& call) noexcept {
  const bool is_scaled = call.op.op == RedOp::premul_sum;
  const bool is_overwritten =
      call.collective == Collective::all_to_all && call.input == call.output;
  return {.is_on_device = call.memory.kind != MemoryKind::host,
          .stages_input = is_scaled || is_overwritten,
          .agreement = call.agreement};
}

/// True if the arguments of a call determine its variant without the addresses of its buffers.
bool is_chosen_by_arguments(const Call& call, Plan::Variant variant) noexcept {
  const bool is_overwritten = call.collective == Collective::all_to_all && variant.stages_input;
  return !call.is_uneven() && !variant.is_on_device && !is_overwritten;
}

/// The planners for calls on devices. Where ranks swap data, received slices must be copied through
/// the host, so that even for one element, another planner needs no more pieces of device work.
std::span<const collectives::Planner> device_planners() {
  static const auto kPlanners = [] {
    std::vector<collectives::Planner> chosen(collectives::planners().begin(),
                                             collectives::planners().end());
    std::erase_if(chosen, [](const auto& planner) { return planner.swaps_data; });
    return chosen;
  }();
  return kPlanners;
}

/// The largest number of channels on which a schedule sends messages to one peer; at least 1.
std::uint32_t most_channels(const collectives::Schedule& schedule) {
  std::set<std::pair<std::uint32_t, std::uint32_t>> streams;  // Of a peer and a channel.
  std::map<std::uint32_t, std::uint32_t> channels;            // For each peer.
  std::uint32_t most = 1;
  for (const auto& step : schedule.steps) {
    const bool is_new =
        step.kind == collectives::StepKind::send && streams.emplace(step.peer, step.channel).second;
    if (is_new) most = std::max(most, ++channels[step.peer]);
  }
  return most;
}

/// Fails if a device cannot compute the program.
Status check_for_device(const Program& program) {
  for (const auto& step : program.steps) {
    if (step.source_count <= execution::kMostSourcesOnDevice) continue;
    return failure(
        Code::unsupported,
        fmt::format("{} reduces {} sources at once, and a device at most {}; choose another "
                    "algorithm (XYLEM_ALGORITHM)",
                    program.algorithm, step.source_count, execution::kMostSourcesOnDevice));
  }
  return {};
}

}  // namespace

Plans::Plans(Site site, collectives::CostModel model, const Logger& logger)
    : site_(std::move(site)), logger_(logger), chooser_({}) {
  model.slice_bytes = site_.slice_bytes;
  chooser_ = collectives::Chooser(std::move(model));
  if (device_chooser_) set_device_chooser();
}

void Plans::set_model(Token /*token*/, collectives::CostModel model) {
  model.slice_bytes = site_.slice_bytes;
  const Lock choosing(choosing_);
  const Lock lock(mutex_);
  chooser_ = collectives::Chooser(std::move(model));
  if (device_chooser_) set_device_chooser();
  // The caches of the ranks may differ. If cached plans were kept here, one rank could use a plan
  // of the old model for a call, and another rank a plan of the new model.
  plans_.clear();
}

collectives::CostModel Plans::model() const {
  const Lock lock(choosing_);
  return chooser_.model();
}

Result<collectives::Choice> Plans::choose(const Shape& shape,
                                          std::uint64_t bytes,
                                          Agreement agreement) {
  auto forced = forced_algorithm(site_.algorithm, shape.collective);
  // A mapped planner applies only to calls on meshes, so it is ignored here.
  if (forced == mapped_planner(shape.collective).name) forced = {};
  const Lock lock(choosing_);
  if (device_chooser_ && agreement == Agreement::on_devices && forced.empty()) {
    return device_chooser_->choose(shape, bytes, {});
  }
  return chooser_.choose(shape, bytes, forced);
}

bool Plans::is_bound() const {
  const Lock lock(choosing_);
  return device_chooser_.has_value();
}

Result<PlanInfo> Plans::explain(const Shape& shape, std::uint64_t count, DataType type) {
  const std::uint64_t bytes = count * size_of(type);
  XYLEM_TRY(const auto choice, choose(shape, bytes, Agreement::on_host));
  PlanInfo info{.algorithm = std::string(choice.planner->name),
                .predicted_us = choice.predicted_us,
                .runner_up = {},
                .runner_up_us = choice.runner_up_us,
                .reason = choice.reason,
                .on_devices = {},
                .on_stream = {}};
  if (choice.runner_up != nullptr) info.runner_up = choice.runner_up->name;
  if (const auto* given = site_.given->find(shape)) {
    info.runner_up = std::exchange(info.algorithm, given->front().algorithm);
    const Lock lock(choosing_);
    const double us = estimate_us(*given, {.count = bytes}, chooser_.model());
    info.runner_up_us = std::exchange(info.predicted_us, us);
    info.reason = fmt::format("given in {}", site_.given->path());
  }
  if (is_bound()) {
    XYLEM_TRY(const auto on_devices, choose(shape, bytes, Agreement::on_devices));
    info.on_devices =
        site_.given->find(shape) != nullptr ? info.algorithm : on_devices.planner->name;
  }
  if (mesh_site() && may_use_mesh(shape)) info.on_stream = mapped_planner(shape.collective).name;
  return info;
}

Result<Plans::Planned> Plans::schedule_for(const Call& call) {
  const Shape shape{call.collective, site_.size, call.root};
  const std::uint64_t bytes = agreed_bytes(call);
  const auto log = [&](std::string_view reason) {
    if (!logger_.enabled(LogLevel::debug)) return;
    logger_.debug(
        fmt::format("{}: {} of {} bytes: {}", site_.label, name(call.collective), bytes, reason));
  };
  if (const auto* given = site_.given->find(shape)) {
    log("the schedule is given in " + site_.given->path());
    return Planned{(*given)[site_.rank], false};
  }
  // A rank without data of an all_to_all_v must choose the same schedule as the others.
  XYLEM_TRY(const auto choice,
            choose(shape, bytes, call.has_private_counts() ? Agreement::on_host : call.agreement));
  log(choice.reason);
  return Planned{choice.plan(site_.rank), !choice.planner->swaps_data};
}

Result<std::shared_ptr<Plan>> Plans::plan_for(const Call& call) {
  const Plan::Variant variant = variant_of(call);
  if (!call.is_uneven()) {
    if (auto kept = kept_for(call, variant)) return kept;
  }
  drop_evicted();
  auto plan = std::make_shared<Plan>();
  if (call.is_on_mesh()) {
    XYLEM_TRY(plan->stream_program, compile_for_mesh(call, variant));
    Call barrier;
    barrier.memory = call.memory;
    XYLEM_TRY(compile_for(barrier, {.is_on_device = true}, *plan));
  } else {
    XYLEM_TRY(compile_for(call, variant, *plan));
  }
  plan->record = record_of(call);
  plan->exchange = execution::Exchange::of(*plan->program, site_.rank, site_.tags);
  plan->variant = variant;
  if (is_chosen_by_arguments(call, variant)) {
    plan->arguments.emplace(Caller{site_.rank, site_.size, site_.devices}, call);
  }
  return plan;
}

void Plans::drop_evicted() {
  std::list<std::shared_ptr<Plan>> evicted;
  const Lock lock(mutex_);
  evicted.swap(evicted_);
}

std::shared_ptr<Plan> Plans::kept_for(const Call& call, Plan::Variant variant) {
  const Lock lock(mutex_);
  for (const auto& plan : plans_) {
    if (same_call(plan->record, call) && plan->variant == variant) return plan;
  }
  return nullptr;
}

Result<collectives::Staging> Plans::staging_for(const Call& call, Plan::Variant variant) const {
  collectives::Staging staging{.input = variant.stages_input};
  if (!variant.is_on_device) return staging;
  XYLEM_TRY(auto* const device, site_.devices->of(call.memory));
  const bool is_shared = device->device_memory() != nullptr;
  staging.separates_scratch = is_shared;
  for (const transport::Capabilities& wire : site_.wires) {
    staging.sends.push_back(!is_shared || !wire.sends_devices);
    staging.receives.push_back(!is_shared || !wire.receives_devices);
  }
  return staging;
}

/// The number of slices in flight to or from one peer on one channel.
std::uint32_t Plans::window_of(const Call& call,
                               Plan::Variant variant,
                               bool is_staged) const noexcept {
  if (!variant.is_on_device) return site_.window;
  const std::uint32_t window = execution::device_window(site_.window);
  if (call.agreement == Agreement::on_devices) {
    return execution::window_of_device_slices(site_.window, site_.device_slice_bytes);
  }
  // Slices that do not stay in device memory occupy pinned host memory while they are in flight.
  return is_staged ? site_.window : window;
}

Status Plans::compile_for(const Call& call, Plan::Variant variant, Plan& plan) {
  XYLEM_TRY(auto planned, schedule_for(call));
  ProgramOptions options;
  options.counts = counts_of(call);
  options.slice_bytes = slice_bytes_of(call);
  options.is_agreed_on_devices = call.agreement == Agreement::on_devices;
  if (reduces(call.collective)) {
    options.arithmetic.reduce = execution::reduce_kernel(call.op.op, call.type);
    options.arithmetic.reduce_id = execution::device_reduce_kernel(call.op.op, call.type);
    options.arithmetic.divisor = call.op.op == RedOp::avg ? site_.size : 1;
  }
  if (call.op.op == RedOp::premul_sum) {
    options.arithmetic.scale = execution::scale_kernel(call.type);
    options.arithmetic.scale_id = execution::device_scale_kernel(call.type);
  }
  options.fusion = variant.is_on_device ? Fusion::views : Fusion::all;
  XYLEM_TRY(const auto staging, staging_for(call, variant));
  for (std::uint32_t rank = 0; rank < staging.sends.size(); ++rank) {
    options.device_sends.push_back(!staging.sends[rank] || rank == site_.rank);
  }
  const bool is_any_staged =
      std::ranges::find(options.device_sends, false) != options.device_sends.end();
  options.window = window_of(call, variant, is_any_staged);
  if (staging.changes_anything()) planned.schedule = stage(planned.schedule, staging);
  options.has_safe_views = planned.is_proven;
  if (const bool fits_slots = site_.fits_slots && options.slice_bytes == site_.slice_bytes;
      variant.is_on_device && !fits_slots) {
    // The proof assumes that a message on one channel never waits for those on another. Messages
    // that do not fit into slots share the announcements to a peer.
    static_assert(transport::kMostAnnounced >= collectives::kMaxChannels);
    const std::uint32_t each = transport::kMostAnnounced / most_channels(planned.schedule);
    if (planned.is_proven) options.window = std::min(options.window, each);
  }
  trace_token(TokenEvent::planned);
  XYLEM_TRY(plan.program, compile(planned.schedule, options));
  plan.is_staged = std::ranges::any_of(plan.program->lanes, [&](const execution::Lane& lane) {
    return lane.peer < options.device_sends.size() && !options.device_sends[lane.peer];
  });
  return variant.is_on_device ? check_for_device(*plan.program) : Status();
}

void Plans::set_devices(Token /*token*/, std::optional<MeshSite> mesh) {
  const Lock choosing(choosing_);
  const Lock lock(mutex_);
  if (!device_chooser_) {
    set_device_chooser();
    plans_.clear();
  }
  mesh_ = mesh;
}

void Plans::set_device_chooser() {
  device_chooser_.emplace(device_costs(chooser_.model(), site_.device_slice_bytes),
                          device_planners());
}

bool Plans::may_use_mesh(const Shape& shape) const {
  if (site_.given->find(shape) != nullptr) return false;
  const auto forced = forced_algorithm(site_.algorithm, shape.collective);
  return forced.empty() || forced == mapped_planner(shape.collective).name;
}

std::optional<Plans::MeshSite> Plans::mesh_site() const {
  const Lock lock(choosing_);
  return mesh_;
}

Result<std::shared_ptr<const execution::StreamProgram>> Plans::compile_for_mesh(
    const Call& call, Plan::Variant variant) const {
  const auto mesh = mesh_site();
  if (!mesh) return failure(Code::internal, "the communicator has no mesh");
  const Shape shape{call.collective, site_.size, call.root};
  std::vector<collectives::Schedule> schedules;
  schedules.reserve(site_.size);
  for (std::uint32_t rank = 0; rank < site_.size; ++rank) {
    schedules.push_back(mapped_planner(call.collective).plan(shape, rank));
  }
  execution::StreamProgramOptions options;
  options.counts = counts_of(call);
  options.call = record_of(call).fingerprint;
  options.stages_input = variant.stages_input;
  // Whether an all_to_all is in place may differ between ranks.
  const bool may_be_in_place =
      call.collective == Collective::all_to_all && !call.has_private_counts();
  if (mesh->may_stage || call.op.op == RedOp::premul_sum || may_be_in_place) {
    options.slice_bytes = mesh->staging_bytes / schedules.size() / 64 * 64;
  }
  if (call.op.op == RedOp::premul_sum) options.scale = execution::device_scale_kernel(call.type);
  if (reduces(call.collective)) {
    options.reduce = execution::device_exchange_kernel(call.op.op, call.type);
    options.divisor = call.op.op == RedOp::avg ? site_.size : 1;
  }
  options.copy = execution::device_exchange_copy_kernel(size_of(call.type));
  return compile_for_stream(schedules, site_.rank, options);
}

Plan* Plans::find(Token /*token*/, const EvenArguments& arguments) noexcept {
  // Only the first few plans are searched, so that a miss costs little. note_use() moves used plans
  // to the front.
  constexpr int kOfLate = 4;
  mutex_.assume_unchanging();
  int looked = 0;
  for (const auto& plan : plans_) {
    if (plan->arguments && plan->arguments->match(arguments)) return plan.get();
    if (++looked == kOfLate) break;
  }
  return nullptr;
}

bool Plans::is_latest(Token /*token*/, const std::shared_ptr<Plan>& plan) const noexcept {
  mutex_.assume_unchanging();
  return !plans_.empty() && plans_.front() == plan;
}

void Plans::note_use(Token token, const std::shared_ptr<Plan>& plan) {
  if (plan->record.uneven || is_latest(token, plan)) return;
  const Lock lock(mutex_);
  const auto kept = std::ranges::find(plans_, plan);
  if (kept != plans_.end()) return plans_.splice(plans_.begin(), plans_, kept);
  plans_.push_front(plan);
  if (plans_.size() > kKeptPlans) evicted_.splice(evicted_.end(), plans_, std::prev(plans_.end()));
}

}  // namespace xylem::runtime
