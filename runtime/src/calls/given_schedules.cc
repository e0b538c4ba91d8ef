// SPDX-License-Identifier: Apache-2.0
#include "calls/given_schedules.h"

#include "named_file.h"
#include "xylem/base/hash.h"
#include "xylem/collectives/staging.h"
#include "xylem/collectives/symmetry.h"
#include "xylem/collectives/text.h"
#include "xylem/collectives/verify.h"
#include "xylem/execution/host_kernels.h"
#include "xylem/execution/program.h"
#include "xylem/execution/verify_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace xylem::runtime {
namespace {

using collectives::Collective;
using collectives::Schedule;
using execution::Program;

std::string title(const Schedule& schedule) {
  return fmt::format("{} {} of {} ranks with root {}", name(schedule.shape.collective),
                     schedule.algorithm, schedule.shape.ranks, schedule.shape.root);
}

/// The ranks whose buffers are in device memory: none, all, or those with odd numbers. The devices
/// read each other's memory.
enum class OnDevice : std::uint8_t { none, all, odd };

/// Compiles and verifies the programs of all ranks for calls in which each chunk has `slices`
/// slices.
Status prove_programs(const std::vector<Schedule>& ranks,
                      std::uint64_t slices,
                      std::uint32_t window,
                      std::uint32_t device_window,
                      bool stages_input,
                      OnDevice which) {
  constexpr std::uint64_t kSlice = 1024;
  const Collective collective = ranks.front().shape.collective;
  execution::ProgramOptions options;
  options.slice_bytes = kSlice;
  options.window = window;
  options.counts.element_bytes = sizeof(float);
  options.counts.count = slices * kSlice / sizeof(float);
  if (collectives::has_free_parts(collective)) options.counts.count *= ranks.front().blocks;
  // For 0 slices, the call has one element: most chunks of a schedule with several blocks are
  // empty.
  options.counts.count = std::max<std::uint64_t>(1, options.counts.count);
  if (reduces(collective)) {
    options.arithmetic.reduce = execution::reduce_kernel(RedOp::sum, DataType::float32);
    if (stages_input) options.arithmetic.scale = execution::scale_kernel(DataType::float32);
  }
  std::vector<std::shared_ptr<const Program>> programs;
  std::vector<const Program*> addresses;
  for (const Schedule& schedule : ranks) {
    const bool is_on_device =
        which == OnDevice::all || (which == OnDevice::odd && schedule.rank % 2 == 1);
    collectives::Staging staging{.input = stages_input};
    if (is_on_device) staging.receives.assign(ranks.size(), true);
    staging.separates_scratch = is_on_device;
    options.fusion = is_on_device ? execution::Fusion::views : execution::Fusion::all;
    options.window = is_on_device ? device_window : window;
    options.device_sends.assign(is_on_device ? ranks.size() : 0, true);
    XYLEM_TRY(auto program,
              execution::compile(staging.changes_anything() ? stage(schedule, staging) : schedule,
                                 options));
    addresses.push_back(programs.emplace_back(std::move(program)).get());
  }
  return execution::verify_program(addresses);
}

Status prove(const std::vector<Schedule>& ranks, const Config& config) {
  XYLEM_TRY(collectives::verify(ranks));
  const Collective collective = ranks.front().shape.collective;
  const std::uint32_t window = config.window, wide = execution::device_window(window);
  const std::uint32_t agreed =
      execution::window_of_device_slices(window, config.device_slice.value);
  for (const bool is_staged : {false, true}) {
    // Only premultiplied sums, and all_to_all in place, have a variant that copies the input to
    // scratch first (Plan::Variant).
    if (is_staged && !reduces(collective) && collective != Collective::all_to_all) continue;
    for (const std::uint64_t slices : {0U, 1U, window, window + 1, 3 * window}) {
      for (const OnDevice which : {OnDevice::none, OnDevice::all, OnDevice::odd}) {
        XYLEM_TRY(prove_programs(ranks, slices, window, wide, is_staged, which));
      }
      XYLEM_TRY(prove_programs(ranks, slices, window, agreed, is_staged, OnDevice::all));
    }
  }
  return {};
}

}  // namespace

Result<GivenSchedules> GivenSchedules::load(const Config& config, Deadline deadline) {
  GivenSchedules given;
  if (config.schedules.empty()) return given;
  const auto about = [&](const Status& why) {
    return failure(why.code(),
                   fmt::format("XYLEM_SCHEDULES={}: {}", config.schedules, why.message()));
  };
  constexpr Bytes kMost{256 << 20};
  XYLEM_TRY(const auto text, read_named_file("XYLEM_SCHEDULES", config.schedules, kMost, deadline));
  if (!text) {
    return about(failure(
        Code::invalid_argument,
        "the file cannot be opened: No such file or directory; name one that every rank can read"));
  }
  auto plans = collectives::parse_plans(*text);
  if (!plans) return about(plans.status());
  if (plans->empty()) {
    return about(failure(Code::invalid_argument,
                         "the file holds no schedule, such as xylem plan "
                         "--format schedules prints"));
  }
  for (const auto& ranks : *plans) {
    if (const Status proven = prove(ranks, config); !proven) {
      return about(
          failure(proven.code(), fmt::format("{}: {}", title(ranks.front()), proven.message())));
    }
  }
  given.path_ = config.schedules;
  given.digest_ = hash_text(*text);
  given.plans_ = *std::move(plans);
  return given;
}

const std::vector<Schedule>* GivenSchedules::find(const collectives::Shape& shape) const noexcept {
  const auto fits = [&](const std::vector<Schedule>& ranks) {
    const collectives::Shape& own = ranks.front().shape;
    return own.collective == shape.collective && own.ranks == shape.ranks && own.root == shape.root;
  };
  const auto plan = std::ranges::find_if(plans_, fits);
  return plan == plans_.end() ? nullptr : &*plan;
}

std::string GivenSchedules::agreed() const {
  return path_.empty() ? "no XYLEM_SCHEDULES\n"
                       : fmt::format("XYLEM_SCHEDULES of contents {:016x}\n", digest_);
}

}  // namespace xylem::runtime
