// SPDX-License-Identifier: Apache-2.0
//
// Lines for people on what NVIDIA's driver allows GPUs, processes and NICs to do with the memory of
// GPUs.
#include "words.h"
#include "xylem/topology/writers.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <string_view>
#include <utility>

namespace xylem::topology {
namespace {

/// "…: all GPUs", "…: not GPU1", "…: GPU0, unknown of others"; empty if the fact is unknown for all
/// GPUs.
std::string line_of(const Topology& topology,
                    std::string_view what,
                    std::optional<bool> Gpu::*fact) {
  std::vector<std::string> with, without;
  for (std::uint32_t i = 0; i < topology.gpus().size(); ++i) {
    const auto& value = topology.gpus()[i].*fact;
    if (value) (*value ? with : without).push_back(fmt::format("GPU{}", i));
  }
  if (with.empty() && without.empty()) return {};
  const bool are_all_known = with.size() + without.size() == topology.gpus().size();
  std::string which = "all GPUs";
  if (!without.empty()) {
    which = fmt::format("not {}", fmt::join(without, ", "));
  } else if (!are_all_known) {
    which = fmt::format("{}", fmt::join(with, ", "));
  }
  return fmt::format("{}: {}{}", what, which, are_all_known ? "" : ", unknown of others");
}

/// One line for each PeerAccess value that occurs.
std::vector<std::string> pair_lines(const Topology& topology) {
  std::map<PeerAccess, std::vector<std::string>> by_access;
  for (const GpuPair& pair : topology.gpu_pairs()) {
    by_access[pair.access].push_back(fmt::format("GPU{}-GPU{}", pair.a, pair.b));
  }
  const std::size_t gpus = topology.gpus().size();
  std::vector<std::string> lines;
  for (const auto& [access, pairs] : by_access) {
    const bool are_all = pairs.size() == gpus * (gpus - 1) / 2;
    lines.push_back(fmt::format("peer access {}: {}", peer_access_text(access),
                                are_all ? "all pairs" : fmt::format("{}", fmt::join(pairs, " "))));
  }
  return lines;
}

}  // namespace

std::vector<std::string> driver_lines(const Topology& topology) {
  const NvidiaDriver& driver = topology.machine().nvidia;
  std::string head = "NVIDIA's driver";
  if (!driver.version.empty()) head += ' ' + driver.version;
  if (!driver.cuda_version.empty()) head += ", CUDA " + driver.cuda_version;
  std::vector<std::string> lines{std::move(head)};
  if (!driver.trouble.empty()) {
    lines.push_back("not everything is known: " + driver.trouble);
  }
  for (std::string& line : pair_lines(topology)) lines.push_back(std::move(line));
  for (std::string line :
       {line_of(topology, "processes can open each other's memory (CUDA IPC)", &Gpu::ipc),
        line_of(topology, "NICs can reach its memory (GPUDirect RDMA)", &Gpu::rdma)}) {
    if (!line.empty()) lines.push_back(std::move(line));
  }
  if (driver == NvidiaDriver() && lines.size() == 1) lines.clear();
  return lines;
}

}  // namespace xylem::topology
