// SPDX-License-Identifier: Apache-2.0
//
// Selects the store through which the ranks of a job find each other: the user's, the rendezvous
// that was set, or the store of the launcher.
#include "bootstrap/file_store.h"
#include "bootstrap/launcher.h"
#include "bootstrap/local_store.h"
#include "bootstrap/pmi_store.h"
#include "bootstrap/pmix_store.h"
#include "bootstrap/tcp_store.h"
#include "rendezvous.h"

#include <fmt/format.h>

#include <charconv>
#include <variant>

namespace xylem::runtime {
namespace {

using MaybeStore = Result<std::shared_ptr<Store>>;

/// Reads a variable with a number from 0 to 65535, a port or a descriptor; -1 if it is not set or
/// not such a number.
int read_port(const Environment& environment, std::string_view name) {
  const auto entry = environment.find(name);
  if (entry == environment.end()) return -1;
  std::uint16_t value = 0;
  const char* const end = entry->second.data() + entry->second.size();
  const auto [stop, error] = std::from_chars(entry->second.data(), end, value);
  return error == std::errc() && stop == end ? value : -1;
}

MaybeStore open_rendezvous(const Placement& placement,
                           const std::string& text,
                           const Logger& logger,
                           Deadline deadline) {
  XYLEM_TRY(const Rendezvous rendezvous, parse_rendezvous(text));
  if (const auto* const directory = std::get_if<SharedDirectory>(&rendezvous)) {
    return FileStore::open(directory->path, placement.job, placement.rank, placement.size,
                           deadline);
  }
  const auto& place = std::get<HostPort>(rendezvous);
  return TcpStore::open({place.host, {place.port}, true}, placement, logger, deadline);
}

MaybeStore open_derived(const Placement& placement,
                        std::uint16_t avoid,
                        const Logger& logger,
                        Deadline deadline) {
  if (placement.rendezvous_host.empty()) {
    const auto* const variable =
        placement.launcher == "slurm" ? "SLURM_STEP_NODELIST" : "MASTER_ADDR";
    return failure(
        Code::invalid_argument,
        fmt::format("{} started {} ranks, but {} does not say where they meet: set it, or "
                    "XYLEM_RENDEZVOUS to tcp://host:port of rank 0",
                    placement.launcher, placement.size, variable));
  }
  return TcpStore::open({placement.rendezvous_host, derived_ports(placement.job, avoid), false},
                        placement, logger, deadline);
}

}  // namespace

MaybeStore open_store(const Placement& placement,
                      const Config& config,
                      const Environment& environment,
                      const std::shared_ptr<Store>& users,
                      const Logger& logger,
                      Deadline deadline) {
  if (users != nullptr) return users;
  if (placement.size == 1) return std::shared_ptr<Store>(std::make_shared<LocalStore>());
  if (!config.rendezvous.empty()) {
    return open_rendezvous(placement, config.rendezvous, logger, deadline);
  }
  if (placement.launcher == "torchrun") {
    // The store of torchrun's agent listens on that port, or will do so later.
    const int taken = read_port(environment, "MASTER_PORT");
    return open_derived(placement, static_cast<std::uint16_t>(taken < 0 ? 0 : taken), logger,
                        deadline);
  }
  if (placement.launcher == "slurm") return open_derived(placement, 0, logger, deadline);
  if (placement.launcher == "openmpi") return open_pmix_store(placement.rank, placement.size);
  if (placement.launcher == "mpich") {
    const int fd = read_port(environment, "PMI_FD");
    if (fd >= 0) {
      auto store = PmiStore::open(fd, placement.rank, deadline);
      if (store) finalize_pmi_at_exit(fd);
      return store;
    }
    return failure(Code::unsupported,
                   "PMI_RANK and PMI_SIZE are set, but PMI_FD is not: this launcher does not speak "
                   "PMI-1; set XYLEM_RENDEZVOUS to tcp://host:port of rank 0");
  }
  return failure(Code::invalid_argument,
                 fmt::format("XYLEM_SIZE is {}, and nothing says where the ranks meet: set "
                             "XYLEM_RENDEZVOUS to tcp://host:port of rank 0, or to "
                             "file:///shared/directory",
                             placement.size));
}

}  // namespace xylem::runtime
