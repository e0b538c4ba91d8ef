// SPDX-License-Identifier: Apache-2.0
//
// The text of `xylem info`: a heading for each kind of fact, and one line for each fact.
#include "info/info.h"

#include "exit_code.h"
#include "xylem/base/quantity.h"
#include "xylem/topology/discover.h"
#include "xylem/topology/gpu_memory.h"
#include "xylem/topology/writers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

namespace xylem::tools {
namespace {

/// The length of the longest text.
template <typename Rows, typename Text>
std::size_t widest(const Rows& rows, Text&& text) {
  std::size_t width = 0;
  for (const auto& row : rows) width = std::max(width, text(row).size());
  return width;
}

std::string value_of(const SettingInfo& setting) {
  return setting.value.empty() ? "(not set)" : setting.value;
}

std::string settings_text(const std::vector<SettingInfo>& settings) {
  const auto names = widest(settings, [](const auto& row) { return row.name; });
  const auto values = widest(settings, [](const auto& row) { return value_of(row); });
  const auto origins = widest(settings, [](const auto& row) { return row.origin; });
  std::string text = "settings (value, origin, meaning; * must be alike on all ranks)\n";
  for (const SettingInfo& row : settings) {
    text += fmt::format("  {:<{}}  {:<{}}  {:<{}} {} {}\n", row.name, names, value_of(row), values,
                        row.origin, origins, row.agreed ? '*' : ' ', row.sentence);
  }
  return text;
}

std::string interfaces_text(const Info& facts) {
  const auto names = widest(facts.interfaces, [](const auto& row) { return row.name; });
  std::string text = "network interfaces (> is the one chosen)\n";
  for (const InterfaceInfo& row : facts.interfaces) {
    text += fmt::format("  {} {:<{}}  {}\n", row.chosen ? '>' : ' ', row.name, names, row.address);
  }
  return text + fmt::format("  reason: {}\n", facts.interface_reason);
}

std::string devices_text(const std::vector<DeviceInfo>& devices) {
  std::map<std::string, std::vector<std::string>> by_transport;
  for (const DeviceInfo& row : devices) by_transport[row.transport].push_back(row.device);
  const auto names = widest(by_transport, [](const auto& row) { return row.first; });
  std::string text = "UCX transports and their devices\n";
  for (const auto& [transport, found] : by_transport) {
    text += fmt::format("  {:<{}}  {}\n", transport, names, fmt::join(found, ", "));
  }
  return text;
}

std::string shared_memory_text(const std::vector<SharedMemoryInfo>& shared) {
  std::string text = "shared memory of a job's ranks on one host (XYLEM_SHARED_MEMORY)\n";
  for (const SharedMemoryInfo& row : shared) {
    const std::string size =
        row.shortage.empty()
            ? fmt::format("{} each, {} in all, slots of {}", format_bytes(Bytes{row.rank_bytes}),
                          format_bytes(Bytes{row.ranks * row.rank_bytes}),
                          format_bytes(Bytes{row.slot_bytes}))
            : row.shortage;
    text += fmt::format("  {:>4} ranks  {}\n", row.ranks, size);
  }
  return text;
}

std::string algorithms_text(const std::vector<AlgorithmInfo>& algorithms) {
  const auto names = widest(algorithms, [](const auto& row) { return row.name; });
  const auto width = widest(algorithms, [](const auto& row) { return row.collective; });
  std::map<std::string, std::string> by_collective;
  for (const AlgorithmInfo& row : algorithms) {
    std::string& lines = by_collective[row.collective];
    lines += fmt::format("  {:<{}}  {:<{}}  {}\n", lines.empty() ? row.collective : "", width,
                         row.name, names, row.summary);
  }
  std::string text = "algorithms\n";
  for (const auto& [collective, lines] : by_collective) text += lines;
  return text;
}

std::string variables_text(const std::vector<std::string>& variables) {
  if (variables.empty()) return "UCX variables: none set\n";
  return fmt::format("UCX variables in the environment\n  {}\n", fmt::join(variables, "\n  "));
}

std::string gpus_text(const Result<topology::Topology>& machine) {
  std::string text = "GPUs (xylem topo shows their places and links)\n";
  if (!machine) return text + fmt::format("  unknown: {}\n", machine.status().message());
  if (machine->gpus().empty()) return text + "  none found\n";
  for (std::size_t i = 0; i < machine->gpus().size(); ++i) {
    const topology::Gpu& gpu = machine->gpus()[i];
    const topology::KnownRate rate = topology::memory_rate(gpu);
    const std::string model = gpu.model.empty() ? "model unknown" : gpu.model;
    const std::string size =
        gpu.memory.value == 0 ? "" : fmt::format(" {}", format_bytes(gpu.memory));
    text += fmt::format("  GPU{:<3} {}, {}, memory{} at {} ({})\n", i, model,
                        gpu.pci.address.to_string(), size, format_bandwidth(rate.bandwidth),
                        rate.origin);
  }
  for (const std::string& line : topology::driver_lines(*machine)) text += "  " + line + '\n';
  return text;
}

}  // namespace

std::string info_text(const Info& facts, const Result<topology::Topology>& machine) {
  std::string text = fmt::format(
      "xylem {}, {}\n", facts.version,
      facts.ucx_missing.empty() ? fmt::format("UCX {}", facts.ucx_version) : facts.ucx_missing);
  text += fmt::format("launcher: {}, rank {} of {}\n", facts.launcher.name, facts.launcher.rank,
                      facts.launcher.size);
  text += fmt::format("reduction kernels: {}\n", fmt::join(facts.kernel_targets, ", "));
  text += '\n' + settings_text(facts.settings);
  text += '\n' + variables_text(facts.ucx_variables);
  text += '\n' + interfaces_text(facts);
  text += '\n' + shared_memory_text(facts.shared_memory);
  text += '\n' + devices_text(facts.devices);
  text += '\n' + gpus_text(machine);
  text += '\n' + algorithms_text(facts.algorithms);
  return text;
}

int info() {
  const auto facts = xylem::info();
  if (!facts) {
    fmt::print(stderr, "xylem info: {}\n", facts.status().message());
    return exit_code(facts.code());
  }
  fmt::print("{}", info_text(*facts, topology::discover()));
  return kExitRight;
}

}  // namespace xylem::tools
