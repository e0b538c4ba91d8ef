// SPDX-License-Identifier: Apache-2.0
//
// The report for people.
#include "bench/bandwidth.h"
#include "bench/report.h"
#include "exit_code.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

namespace xylem::tools {
namespace {

constexpr std::string_view kNameFormat = "{:>12}  {:>12}  {:>12}  {:>10}  {:>4}";

std::string figure_columns(std::string_view time,
                           std::string_view algorithm,
                           std::string_view bus,
                           std::string_view wrong,
                           std::string_view limit) {
  return fmt::format("  {:>10}  {:>7}  {:>7}  {:>6}  {:>6}", time, algorithm, bus, wrong, limit);
}

template <typename... Columns>
std::string name_columns(const Columns&... columns) {
  return fmt::format(fmt::runtime(kNameFormat), columns...);
}

std::string transports_text(const BenchEnvironment& environment) {
  std::vector<std::string> texts;
  texts.reserve(environment.transports.size());
  for (const auto& [transport, lanes] : environment.transports) {
    texts.push_back(lanes.empty() ? transport
                                  : fmt::format("{} over {}", transport, fmt::join(lanes, ", ")));
  }
  return fmt::format("{}", fmt::join(texts, "; "));
}

/// Percentage of the memory's bandwidth that the row reaches.
std::string limit_text(const BenchRow& row) {
  constexpr double kPercent = 100;
  if (!row.limit || row.measured.microseconds.p50 <= 0) return "-";
  return fmt::format("{:.0f}", kPercent * *row.limit / row.measured.microseconds.p50);
}

}  // namespace

GBps algorithm_bandwidth(const BenchRow& row) {
  return algorithm_bandwidth(row.size, row.measured.microseconds.p50);
}

GBps bus_bandwidth(const BenchRow& row) {
  return {algorithm_bandwidth(row).value * bus_factor(row.operation, row.ranks)};
}

int exit_status(const std::vector<BenchRow>& rows) {
  const auto is_wrong = [](const BenchRow& row) { return row.measured.wrong != 0; };
  return std::ranges::any_of(rows, is_wrong) ? kExitWrongResult : kExitRight;
}

std::string header_text(const BenchEnvironment& environment) {
  const std::size_t hosts = environment.hosts.size();
  std::string text =
      fmt::format("# xylem {}{}{}\n", environment.xylem_version,
                  environment.commit.empty() ? "" : fmt::format(" (commit {})", environment.commit),
                  environment.ucx_version.empty() ? "" : ", UCX " + environment.ucx_version);
  text += fmt::format("# {}, {} cores usable on {}\n", environment.cpu, environment.cores,
                      environment.hosts.empty() ? "?" : environment.hosts.front());
  text += fmt::format("# {} ranks on {} host{}, started by {}\n", environment.ranks, hosts,
                      hosts == 1 ? "" : "s", environment.launcher);
  text += fmt::format("# {}\n", transports_text(environment));
  if (!environment.buffers.empty()) text += fmt::format("# buffers: {}\n", environment.buffers);
  text += environment.back_to_back
              ? "# time: the slowest rank's mean of consecutive calls\n"
              : "# time: median over calls of the slowest rank's time, a barrier before each\n";
  return text;
}

std::string table_head(Operation operation, bool in_place, bool with_ratio) {
  const OperationTraits& kind = traits(operation);
  std::string text = fmt::format("#\n# {}", kind.name);
  if (kind.sizing != Sizing::none) {
    text += fmt::format(", {}; size: {}", in_place ? "in place" : "out of place", kind.size);
  }
  text += "\n#" + name_columns("size", "count", "type", "redop", "root").substr(1);
  text += figure_columns("time", "algbw", "busbw", "#wrong", "limit");
  text += fmt::format("{}  algorithm\n", with_ratio ? "  vs base" : "");
  std::string units = '#' + name_columns("(B)", "(elements)", "", "", "").substr(1);
  units += figure_columns("(us)", "(GB/s)", "(GB/s)", "", "(%)");
  units += with_ratio ? "      (x)" : "";
  units.erase(units.find_last_not_of(' ') + 1);
  return text + units + '\n';
}

std::string table_line(const BenchRow& row) {
  std::string text =
      name_columns(row.size.value, row.count, name(row.type), row.redop ? name(*row.redop) : "none",
                   row.root ? static_cast<std::int64_t>(*row.root) : -1);
  text += figure_columns(fmt::format("{:.2f}", row.measured.microseconds.p50),
                         fmt::format("{:.2f}", algorithm_bandwidth(row).value),
                         fmt::format("{:.2f}", bus_bandwidth(row).value),
                         row.checked ? std::to_string(row.measured.wrong) : "N/A", limit_text(row));
  if (row.ratio) text += fmt::format("  {:>7.2f}", *row.ratio);
  text += fmt::format("  {}\n", row.algorithm);
  return text;
}

std::string average_line(std::span<const BenchRow> rows) {
  double sum = 0;
  for (const BenchRow& row : rows) sum += bus_bandwidth(row).value;
  return fmt::format("# average bus bandwidth: {:.4g} GB/s\n",
                     sum / static_cast<double>(rows.size()));
}

std::string counters_line(const Counters& used) {
  return fmt::format(
      "# one call of rank 0: {} messages, {} pieces of device work, {} through the host, "
      "{} driver calls in {:.1f} us, {} turns of which {} idle\n",
      used.messages, used.pieces, format_bytes(Bytes{used.staged_bytes}), used.driver_calls,
      std::chrono::duration<double, std::micro>(used.driver_time).count(), used.turns,
      used.idle_turns);
}

}  // namespace xylem::tools
