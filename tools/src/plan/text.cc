// SPDX-License-Identifier: Apache-2.0
#include "plan/text.h"

#include "exit_code.h"

#include <fmt/format.h>

namespace xylem::tools {
namespace {

std::string_view data_text(const PlannedMemory& memory) {
  if (!memory.is_on_gpus) return "in memory of the hosts";
  return memory.is_staged ? "in memory of GPUs, sent between hosts through pinned memory"
                          : "in memory of GPUs, sent directly over their links";
}

}  // namespace

int refuse(std::string_view verb, const Status& status) {
  fmt::print(stderr, "xylem {}: {}\n", verb, status.message());
  return kExitUsage;
}

std::string time_text(double us) {
  if (us < 1e3) return fmt::format("{:.3g} us", us);
  return us < 1e6 ? fmt::format("{:.3g} ms", us / 1e3) : fmt::format("{:.3g} s", us / 1e6);
}

std::string counted(std::uint64_t count, std::string_view thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

Operation operation_of(collectives::Collective collective) {
  // Both enumerations use the same names.
  return *parse_operation(name(collective));
}

void print_job(const PlannedJob& job) {
  const auto line = [](const char* where, const collectives::LinkCost& cost,
                       const std::string& origin) {
    fmt::print("  {:<24} {:.4g} us + {} ({})\n", where, cost.alpha_us,
               format_bandwidth(GBps{cost.bandwidth_GBps}), origin);
  };
  fmt::print("  {:<24} {}\n", "data", data_text(job.memory));
  line("between ranks of a host", job.model.local, job.memory.local_origin);
  if (job.hosts() > 1) {
    line("between hosts", job.model.remote, job.remote_origin);
    const auto rails = rails_of(job);
    for (std::size_t i = 0; i < rails.size(); ++i) {
      fmt::print("  {:<24} {}\n", fmt::format("rail {}", i), rails[i]);
    }
  }
  for (std::size_t host = 0; host < job.ranks_of_host.size(); ++host) {
    const std::uint32_t cores = job.model.machine_cores[host], ranks = job.ranks_of_host[host];
    if (cores == 0 || cores >= ranks) continue;
    fmt::print("  {:<24} {} cores for {} ranks, which take turns\n",
               fmt::format("on host {}", host), cores, ranks);
    break;  // The other hosts are usually equal.
  }
  const collectives::ComputeCost& compute = job.model.compute;
  fmt::print("  {:<24} reductions {}, copies {} ({})\n", "at a rank",
             format_bandwidth(GBps{compute.reduce_GBps}), format_bandwidth(GBps{compute.copy_GBps}),
             job.memory.compute_origin);
  if (compute.is_device) {
    fmt::print(
        "  {:<24} {:.3g} us of the core to begin a piece, {:.3g} us until it is seen to "
        "begin and end (assumed)\n",
        "", compute.enqueue_us, compute.latency_us);
  }
  fmt::print("  {:<24} {} ({})\n", "slices", format_bytes(Bytes{job.memory.slice_bytes}),
             job.memory.slice_origin);
}

}  // namespace xylem::tools
