// SPDX-License-Identifier: Apache-2.0
//
// Finds out the machine, the job and the versions.
#include "bench/environment.h"

#include "bench/agreement.h"
#include "commit.h"
#include "xylem/transport/ucx.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <ranges>
#include <sstream>
#include <thread>

namespace xylem::tools {
namespace {

/// One line "transport lane" for each lane, and a line with only the transport if no lane is known
/// yet.
std::string own_lanes(const Runtime& runtime) {
  std::string text;
  for (const PathInfo& path : runtime.paths()) {
    if (path.rank == runtime.rank() && runtime.size() > 1) continue;
    text += path.transport + '\n';
    for (const std::string& lane : path.lanes) text += path.transport + ' ' + lane + '\n';
  }
  return text;
}

void add_lanes(const std::string& text, BenchEnvironment& environment) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto space = line.find(' ');
    auto& lanes = environment.transports[line.substr(0, space)];
    if (space != std::string::npos) lanes.insert(line.substr(space + 1));
  }
}

}  // namespace

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  utsname system{};
  return ::uname(&system) == 0 ? fmt::format("{} processor", system.machine) : "unknown processor";
}

Result<BenchEnvironment> find_environment(const Runtime& runtime,
                                          const Communicator& control,
                                          const BenchOptions& options) {
  BenchEnvironment environment;
  environment.cpu = cpu_model();
  environment.cores = std::thread::hardware_concurrency();
  for (const std::string& host : runtime.hosts()) {
    if (std::ranges::find(environment.hosts, host) == environment.hosts.end()) {
      environment.hosts.push_back(host);
    }
  }
  environment.ranks = runtime.size();
  environment.launcher = runtime.launcher();
  environment.xylem_version = version();
  environment.ucx_version = transport::ucx_version();
  environment.commit = kCommit;
  environment.back_to_back = options.back_to_back;
  if (options.device.is_cuda) {
    environment.buffers = options.device.number ? fmt::format("CUDA device {} of each process",
                                                              *options.device.number)
                                                : "CUDA devices, by the rank's number on its host";
    if (options.stream) environment.buffers += "; calls in the order of a stream";
  }
  XYLEM_TRY(const auto texts, texts_of(control, own_lanes(runtime)));
  for (const std::string& text : texts) add_lanes(text, environment);
  return environment;
}

std::string transport_names(const BenchEnvironment& environment) {
  return fmt::format("{}", fmt::join(std::views::keys(environment.transports), "+"));
}

}  // namespace xylem::tools
