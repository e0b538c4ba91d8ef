// SPDX-License-Identifier: Apache-2.0
#include "info/paths.h"

#include "bench/agreement.h"
#include "exit_code.h"
#include "xylem/base/rank_list.h"
#include "xylem/runtime/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace xylem::tools {
namespace {

/// The rate of the best path to another host; 0 if all ranks are on one host.
double best_of(std::span<const PathInfo> paths) {
  double best = 0;
  for (const PathInfo& path : paths) {
    if (!path.is_within_host) best = std::max(best, path.bandwidth_GBps);
  }
  return best;
}

Result<std::string> job_text(const Runtime& runtime) {
  const Communicator world = runtime.world();
  const std::vector<PathInfo> paths = runtime.paths();
  XYLEM_TRY(const auto lines, texts_of(world, path_lines(runtime.rank(), paths)));
  std::vector<double> best(runtime.size(), 0);
  best[runtime.rank()] = best_of(paths);
  XYLEM_TRY(best, maximum_of(world, std::move(best)));
  std::string text = fmt::format("{} ranks, started by {}\n", runtime.size(), runtime.launcher());
  for (const std::string& line : lines) text += line;
  return text + slow_hosts_text(best, paths);
}

}  // namespace

std::string path_lines(std::uint32_t rank, std::span<const PathInfo> paths) {
  // Rates are printed with three digits, so equal texts make one line.
  std::map<std::pair<std::string, std::string>, std::vector<std::uint32_t>> ranks_of;
  for (const PathInfo& path : paths) {
    if (path.rank == rank) continue;
    const std::string cost = fmt::format("{:.3g} us, {:.3g} GB/s{}", path.latency_us,
                                         path.bandwidth_GBps, path.is_measured ? "" : ", assumed");
    ranks_of[{path.transport, cost}].push_back(path.rank);
  }
  const PathInfo& own = paths[rank];
  const std::string port = own.port.empty() ? "" : fmt::format(", {}", own.port);
  std::string text = fmt::format("rank {} on {}{}\n", rank, own.host, port);
  for (const auto& [path, ranks] : ranks_of) {
    const auto& [transport, cost] = path;
    text += fmt::format("  {} to {}: {}\n", transport, rank_list(ranks), cost);
  }
  return text;
}

std::string slow_hosts_text(std::span<const double> best_GBps, std::span<const PathInfo> paths) {
  constexpr double kSlow = 0.8;  // Of the rate of most.
  std::vector<double> sorted(best_GBps.begin(), best_GBps.end());
  std::ranges::sort(sorted);
  const double usual = sorted[sorted.size() / 2];
  std::map<std::string, std::vector<std::uint32_t>> ranks_of;
  for (std::uint32_t rank = 0; rank < best_GBps.size(); ++rank) {
    if (best_GBps[rank] > 0 && best_GBps[rank] < kSlow * usual)
      ranks_of[paths[rank].host].push_back(rank);
  }
  std::string text;
  for (const auto& [host, ranks] : ranks_of) {
    text += fmt::format("slow: {} ({} {}) sends {:.3g} GB/s, most send {:.3g}\n", host,
                        ranks.size() == 1 ? "rank" : "ranks", rank_list(ranks),
                        best_GBps[ranks.front()], usual);
  }
  return text;
}

int info_paths() {
  Result<Runtime> runtime = Runtime::create();
  if (!runtime) {
    fmt::print(stderr, "xylem info: {}\n", runtime.status().message());
    return exit_code(runtime.code());
  }
  if (runtime->size() == 1) {
    fmt::print(stderr,
               "xylem info: --paths shows how the ranks of a job reach each other, and this job "
               "has one rank; start more: xylem run -n 2 -- xylem info --paths\n");
    return kExitUsage;
  }
  const bool is_first = runtime->rank() == 0;
  const auto text = job_text(*runtime);
  Status status = text.status();
  if (status) status = runtime->shutdown();
  if (!status) {
    fmt::print(stderr, "xylem info: {}\n", status.message());
    return exit_code(status.code());
  }
  if (is_first) fmt::print("{}", *text);
  return kExitRight;
}

}  // namespace xylem::tools
