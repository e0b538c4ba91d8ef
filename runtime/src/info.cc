// SPDX-License-Identifier: Apache-2.0
//
// Collects the facts for `xylem info`, each by the code that the start of a job uses.
#include "xylem/runtime/info.h"

#include "bootstrap/interface.h"
#include "bootstrap/launcher.h"
#include "config.h"
#include "rendezvous.h"
#include "xylem/collectives/planner.h"
#include "xylem/execution/host_kernels.h"
#include "xylem/runtime/runtime.h"
#include "xylem/transport/shm.h"
#include "xylem/transport/ucx.h"

#include <fmt/format.h>

#include <set>
#include <variant>

namespace xylem {
namespace {

using runtime::Config;
using runtime::ConfigRow;
using runtime::Environment;

/// Time limit for looking up the host name of the rendezvous, so that `xylem info` answers soon.
constexpr std::chrono::seconds kLookup{2};

std::vector<SettingInfo> settings_of(const std::vector<ConfigRow>& rows) {
  std::vector<SettingInfo> settings;
  settings.reserve(rows.size());
  for (const ConfigRow& row : rows) {
    settings.push_back(
        {row.name, row.value, row.default_value, row.origin, row.unit, row.sentence, row.agreed});
  }
  return settings;
}

std::vector<std::string> ucx_variables_of(const Environment& environment) {
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) {
    if (name.starts_with("UCX_")) variables.push_back(fmt::format("{}={}", name, value));
  }
  return variables;
}

/// The host that XYLEM_RENDEZVOUS names; empty if it names a directory or is not set.
Result<std::string> rendezvous_host(const Config& config) {
  if (config.rendezvous.empty()) return std::string();
  XYLEM_TRY(const auto place, runtime::parse_rendezvous(config.rendezvous));
  const auto* served = std::get_if<runtime::HostPort>(&place);
  return served != nullptr ? served->host : std::string();
}

Status find_interfaces(const Config& config, Info& info) {
  XYLEM_TRY(const std::string host, rendezvous_host(config));
  XYLEM_TRY(const auto all, runtime::list_interfaces());
  const auto rendezvous = runtime::find_rendezvous_host(host, Deadline::after(kLookup));
  const auto choice = rendezvous ? runtime::choose_interface(all, config.interfaces, *rendezvous)
                                 : Result<runtime::InterfaceChoice>(rendezvous.status());
  // If no interface can be chosen, info() does not fail: it returns the reason.
  info.interface_reason = choice ? choice->reason : std::string(choice.status().message());
  for (const runtime::Interface& one : all) {
    const bool chosen =
        choice && choice->chosen.name == one.name && choice->chosen.address.same_host(one.address);
    info.interfaces.push_back({one.name, one.address.host(), chosen});
  }
  return {};
}

std::vector<SharedMemoryInfo> shared_memory_of(const Config& config, std::uint32_t job_ranks) {
  std::set<std::uint32_t> counts{2, 8, 64};
  if (job_ranks > 1) counts.insert(job_ranks);
  std::vector<SharedMemoryInfo> found;
  for (const std::uint32_t ranks : counts) {
    const auto size = transport::shm_size({ranks - 1, config.shared_memory.value});
    found.push_back(size ? SharedMemoryInfo{ranks, size->bytes, size->slot_bytes, {}}
                         : SharedMemoryInfo{ranks, 0, 0, std::string(size.status().message())});
  }
  return found;
}

}  // namespace

Result<std::vector<SettingInfo>> setting_infos() {
  XYLEM_TRY(const auto loaded, runtime::load_config(runtime::process_environment(), {}));
  return settings_of(loaded.rows);
}

Result<LauncherInfo> launcher_info() {
  const Environment environment = runtime::process_environment();
  XYLEM_TRY(const auto loaded, runtime::load_config(environment, {}));
  XYLEM_TRY(auto placement, runtime::detect_placement(loaded.config, environment));
  return LauncherInfo{std::move(placement.launcher), placement.rank, placement.size};
}

Result<Info> info() {
  const Environment environment = runtime::process_environment();
  XYLEM_TRY(const auto loaded, runtime::load_config(environment, {}));
  Info info;
  info.version = version();
  XYLEM_TRY(info.launcher, launcher_info());
  info.settings = settings_of(loaded.rows);
  info.ucx_variables = ucx_variables_of(environment);
  XYLEM_TRY(find_interfaces(loaded.config, info));
  info.shared_memory = shared_memory_of(loaded.config, info.launcher.size);
  if (const auto devices = transport::ucx_devices()) {
    for (const auto& device : *devices) info.devices.push_back({device.transport, device.device});
  } else {
    info.ucx_missing = devices.status().message();
  }
  info.ucx_version = transport::ucx_version();
  for (const collectives::Planner& planner : collectives::planners()) {
    info.algorithms.push_back({std::string(name(planner.collective)), std::string(planner.name),
                               std::string(planner.summary)});
  }
  for (const auto target : execution::kernel_targets()) info.kernel_targets.emplace_back(target);
  return info;
}

}  // namespace xylem
