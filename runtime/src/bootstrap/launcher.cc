// SPDX-License-Identifier: Apache-2.0
//
// Reads rank and size from the variables that launchers set. There is one function per launcher,
// called in the order of precedence. The first launcher whose variables are set decides. If only
// some of its variables are set, this is an error.
#include "bootstrap/launcher.h"

#include "bootstrap/secret.h"
#include "bootstrap/slurm_nodes.h"
#include "bootstrap/socket_address.h"
#include "bootstrap/user_key.h"
#include "rendezvous.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <variant>

namespace xylem::runtime {
namespace {

using Found = Result<std::optional<Placement>>;

Status refused(std::string message) { return failure(Code::invalid_argument, std::move(message)); }

std::string_view text_of_variable(const Environment& environment, std::string_view name) {
  const auto entry = environment.find(name);
  return entry == environment.end() ? std::string_view() : std::string_view(entry->second);
}

/// A variable that holds a number; nothing if it is not set.
Result<std::optional<std::uint32_t>> read_number(const Environment& environment,
                                                 std::string_view name) {
  const auto entry = environment.find(name);
  if (entry == environment.end()) return std::optional<std::uint32_t>();
  const std::string& text = entry->second;
  std::uint32_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) {
    return refused(fmt::format("{} is \"{}\": it must be a whole number, as the launcher sets it",
                               name, text));
  }
  return std::optional(value);
}

/// The variables in which a launcher passes rank and size.
struct Names {
  std::string_view launcher, rank, size;
};

Status check_place(const Names& names, std::uint32_t rank, std::uint32_t size) {
  if (rank < size) return {};
  return refused(fmt::format("{} is {} and {} is {}: ranks go from 0 to size - 1", names.rank, rank,
                             names.size, size));
}

/// A placement with rank and size; nothing if neither variable is set.
Found read_place(const Environment& environment, const Names& names) {
  XYLEM_TRY(const auto rank, read_number(environment, names.rank));
  XYLEM_TRY(const auto size, read_number(environment, names.size));
  if (!rank && !size) return std::optional<Placement>();
  if (!rank || !size) {
    return refused(fmt::format("{} is set and {} is not: {} sets both; set both, or unset {}",
                               rank ? names.rank : names.size, rank ? names.size : names.rank,
                               names.launcher, rank ? names.rank : names.size));
  }
  XYLEM_TRY(check_place(names, *rank, *size));
  Placement placement;
  placement.launcher = names.launcher;
  placement.rank = *rank;
  placement.size = *size;
  return std::optional(std::move(placement));
}

Found from_settings(const Config& config, const Environment& environment) {
  if (!config.rank && !config.size) return std::optional<Placement>();
  const Names names{"options", "XYLEM_RANK", "XYLEM_SIZE"};
  if (!config.rank || !config.size) {
    return refused(
        fmt::format("{} is set and {} is not: set both, or neither and let the launcher say",
                    config.rank ? names.rank : names.size, config.rank ? names.size : names.rank));
  }
  XYLEM_TRY(check_place(names, *config.rank, *config.size));
  Placement placement;
  placement.launcher = environment.contains(names.rank) ? "xylem" : "options";
  placement.rank = *config.rank;
  placement.size = *config.size;
  placement.job = "xylem " + config.rendezvous;
  return std::optional(std::move(placement));
}

Found from_torchrun(const Environment& environment) {
  XYLEM_TRY(auto placement, read_place(environment, {"torchrun", "RANK", "WORLD_SIZE"}));
  if (!placement) return placement;
  const auto address = text_of_variable(environment, "MASTER_ADDR");
  const auto port = text_of_variable(environment, "MASTER_PORT");
  placement->job = fmt::format("torchrun {} {} {} {}", address, port,
                               text_of_variable(environment, "TORCHELASTIC_RUN_ID"),
                               text_of_variable(environment, "TORCHELASTIC_RESTART_COUNT"));
  placement->rendezvous_host = address;
  return placement;
}

Found from_openmpi(const Environment& environment) {
  XYLEM_TRY(auto placement,
            read_place(environment, {"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}));
  if (!placement) return placement;
  const auto space = text_of_variable(environment, "PMIX_NAMESPACE");
  placement->job =
      fmt::format("openmpi {}",
                  space.empty() ? text_of_variable(environment, "OMPI_MCA_ess_base_jobid") : space);
  return placement;
}

Found from_mpich(const Environment& environment) {
  XYLEM_TRY(auto placement, read_place(environment, {"mpich", "PMI_RANK", "PMI_SIZE"}));
  if (placement) {
    // Hydra gives a job no name. Its key-value space belongs to one job, and the random number that
    // rank 0 puts there distinguishes jobs.
    placement->job = fmt::format("mpich {}", text_of_variable(environment, "PMI_JOBID"));
    return placement;
  }
  if (environment.contains("PMI_PORT") && environment.contains("PMI_ID")) {
    return failure(
        Code::unsupported,
        "this process was started with PMI_PORT, which does not tell the number of ranks: "
        "start without -pmi-port, or set XYLEM_RANK, XYLEM_SIZE and XYLEM_RENDEZVOUS");
  }
  return placement;
}

Found from_slurm(const Environment& environment) {
  // A batch script has SLURM_PROCID and SLURM_NTASKS, too, but only srun makes a step of that many
  // tasks.
  if (!environment.contains("SLURM_STEP_ID") && !environment.contains("SLURM_STEP_NODELIST")) {
    return std::optional<Placement>();
  }
  const bool has_step_size = environment.contains("SLURM_STEP_NUM_TASKS");
  XYLEM_TRY(auto placement,
            read_place(environment, {"slurm", "SLURM_PROCID",
                                     has_step_size ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS"}));
  if (!placement) return placement;
  placement->job = fmt::format("slurm {} {} {}", text_of_variable(environment, "SLURM_JOB_ID"),
                               text_of_variable(environment, "SLURM_STEP_ID"),
                               text_of_variable(environment, "SLURM_RESTART_COUNT"));
  const auto list = text_of_variable(environment, "SLURM_STEP_NODELIST");
  if (!list.empty()) {
    XYLEM_TRY(const auto nodes, expand_node_list(list));
    placement->rendezvous_host = nodes.front();
  }
  return placement;
}

Status choose_secret(const std::string& given, Placement& placement) {
  if (!given.empty()) {
    placement.secret = given;
    placement.secret_origin = SecretOrigin::given;
  } else if (placement.size > 1 && is_loopback_host(placement.rendezvous_host)) {
    XYLEM_TRY(placement.secret, secret_of_user(user_key_folder(), placement.job));
    placement.secret_origin = SecretOrigin::user;
  } else {
    placement.secret = secret_of_job(placement.job);
    placement.secret_origin = SecretOrigin::job;
  }
  return {};
}

Found ask_launchers(const Config& config, const Environment& environment) {
  XYLEM_TRY(auto placement, from_settings(config, environment));
  for (const auto launcher : {from_torchrun, from_openmpi, from_mpich, from_slurm}) {
    if (placement) break;
    XYLEM_TRY(placement, launcher(environment));
  }
  return placement;
}

}  // namespace

Result<Placement> detect_placement(const Config& config, const Environment& environment) {
  XYLEM_TRY(auto found, ask_launchers(config, environment));
  Placement placement = std::move(found).value_or(Placement());
  if (!config.job.empty()) placement.job += " " + config.job;

  if (!config.rendezvous.empty()) {
    XYLEM_TRY(const Rendezvous rendezvous, parse_rendezvous(config.rendezvous));
    if (const auto* const place = std::get_if<HostPort>(&rendezvous)) {
      placement.rendezvous_host = place->host;
    } else {
      placement.rendezvous_host.clear();
    }
  }
  XYLEM_TRY(choose_secret(config.secret, placement));
  return placement;
}

}  // namespace xylem::runtime
