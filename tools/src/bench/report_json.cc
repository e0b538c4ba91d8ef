// SPDX-License-Identifier: Apache-2.0
//
// The report for programs: writing it, and reading it back.
#include "bench/bandwidth.h"
#include "bench/report.h"
#include "xylem/base/file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace xylem::tools {
namespace {

using Json = nlohmann::ordered_json;

Json environment_json(const BenchEnvironment& environment) {
  Json transports = Json::object();
  for (const auto& [transport, lanes] : environment.transports) transports[transport] = lanes;
  return {{"cpu", environment.cpu},
          {"cores", environment.cores},
          {"hosts", environment.hosts},
          {"ranks", environment.ranks},
          {"launcher", environment.launcher},
          {"transports", transports},
          {"xylem", environment.xylem_version},
          {"ucx", environment.ucx_version},
          {"commit", environment.commit},
          {"timing", environment.back_to_back ? "back_to_back" : "barrier"}};
}

/// All fields are null if nothing was counted, so that all rows have the same fields.
Json counters_json(const std::optional<Counters>& used) {
  const auto field = [&](const auto& value) { return used ? Json(value(*used)) : Json(); };
  return {{"messages", field([](const Counters& c) { return c.messages; })},
          {"announced", field([](const Counters& c) { return c.announced; })},
          {"turns", field([](const Counters& c) { return c.turns; })},
          {"idle_turns", field([](const Counters& c) { return c.idle_turns; })},
          {"pieces", field([](const Counters& c) { return c.pieces; })},
          {"staged_bytes", field([](const Counters& c) { return c.staged_bytes; })},
          {"driver_calls", field([](const Counters& c) { return c.driver_calls; })},
          {"driver_ns", field([](const Counters& c) { return c.driver_time.count(); })}};
}

Json row_json(const BenchRow& row) {
  const Statistics& time = row.measured.microseconds;
  Json json = {
      {"op", traits(row.operation).name},
      {"algorithm", row.algorithm},
      {"transport", row.transport},
      {"ranks", row.ranks},
      {"bytes", row.size.value},
      {"count", row.count},
      {"type", name(row.type)},
      {"redop", row.redop ? Json(name(*row.redop)) : Json()},
      {"root", row.root ? Json(*row.root) : Json()},
      {"in_place", row.in_place},
      {"allocated", row.allocated},
      {"device", row.on_device ? "cuda" : "host"},
      {"stream", row.on_stream},
      {"offset", row.offset.value},
      {"parts", row.parts ? Json(kPartsNames[static_cast<std::size_t>(*row.parts)]) : Json()},
      {"iterations", row.measured.iterations},
      {"time_us", {{"min", time.min}, {"p50", time.p50}, {"p99", time.p99}}},
      {"predicted_us", row.predicted_us ? Json(*row.predicted_us) : Json()},
      {"algbw_GBps", algorithm_bandwidth(row).value},
      {"busbw_GBps", bus_bandwidth(row).value},
      {"limit_us", row.limit ? Json(*row.limit) : Json()},
      {"used", counters_json(row.used)}};
  json["wrong"] = row.checked ? Json(row.measured.wrong) : Json();
  return json;
}

/// The name of a column of CSV for a path in a row, such as "/time_us/p50".
std::string column_name(std::string path) {
  path.erase(0, 1);
  std::ranges::replace(path, '/', '_');
  return path;
}

/// A value as a field of CSV (RFC 4180).
std::string field_text(const Json& value) {
  if (value.is_null()) return {};
  if (!value.is_string()) return value.dump();
  std::string text = value.get<std::string>();
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  for (std::size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 2) {
    text.insert(at, 1, '"');
  }
  return '"' + text + '"';
}

/// The value of a field in a report that was written before the field existed.
std::string_view default_of(std::string_view field, const Json& row) {
  if (field == "offset") return "0";
  if (field == "allocated" || field == "stream") return "false";
  if (field == "device") return "\"host\"";
  const bool is_uneven = row.value("op", std::string()).ends_with("_v");
  return field == "parts" && is_uneven ? "\"rising\"" : "null";
}

/// The fields that identify a measurement. Algorithm and transport are left out, so that
/// measurements with different ones can be compared.
std::string key_of(const Json& row) {
  std::string key;
  for (const char* field : {"op", "ranks", "bytes", "type", "redop", "root", "in_place",
                            "allocated", "device", "stream", "offset", "parts"}) {
    if (row.contains(field)) {
      key += row[field].dump();
    } else {
      key += default_of(field, row);
    }
    key += ' ';
  }
  return key;
}

Status not_a_report(const std::string& source, std::string_view why) {
  return failure(Code::invalid_argument,
                 fmt::format("{} is no report of xylem bench --json: {}", source, why));
}

}  // namespace

std::string to_json(const BenchEnvironment& environment,
                    const std::vector<BenchRow>& rows,
                    bool is_complete) {
  Json results = Json::array();
  for (const BenchRow& row : rows) results.push_back(row_json(row));
  constexpr int kIndent = 2;
  const Json report = {{"schema", kReportSchema},
                       {"complete", is_complete},
                       {"environment", environment_json(environment)},
                       {"results", results}};
  return report.dump(kIndent, ' ', false, Json::error_handler_t::replace) + '\n';
}

std::string to_csv(const std::vector<BenchRow>& rows) {
  std::vector<std::string> fields;
  const Json names = row_json({}).flatten();
  for (const auto& field : names.items()) fields.push_back(column_name(field.key()));
  std::string text = fmt::format("{}\n", fmt::join(fields, ","));
  for (const BenchRow& row : rows) {
    fields.clear();
    for (const Json& value : row_json(row).flatten()) fields.push_back(field_text(value));
    text += fmt::format("{}\n", fmt::join(fields, ","));
  }
  return text;
}

Result<Baseline> Baseline::parse(const std::string& text, const std::string& source) {
  const Json report = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (report.is_discarded()) return not_a_report(source, "it is not JSON");
  if (!report.is_object() || !report.contains("schema") || !report.contains("results") ||
      !report["results"].is_array()) {
    return not_a_report(source, R"(it has no "schema" and "results")");
  }
  if (report["schema"] != kReportSchema) {
    return not_a_report(source, fmt::format("its schema is {}, this build reads {}",
                                            report["schema"].dump(), kReportSchema));
  }
  Baseline baseline;
  for (const Json& row : report["results"]) {
    if (!row.is_object() || !row.contains("time_us") || !row["time_us"].is_object() ||
        !row["time_us"].contains("p50") || !row["time_us"]["p50"].is_number()) {
      return not_a_report(source, "a result has no number in time_us.p50");
    }
    baseline.times_[key_of(row)] = row["time_us"]["p50"].get<double>();
  }
  return baseline;
}

Result<Baseline> Baseline::read(const std::string& path) {
  constexpr Bytes kMost{64 << 20};
  const auto text = read_any_file(path, kMost);
  if (text) return parse(*text, path);
  return failure(text.code(), fmt::format("--baseline {}: {}", path, text.status().message()));
}

std::optional<double> Baseline::ratio(const BenchRow& row) const {
  const auto found = times_.find(key_of(row_json(row)));
  if (found == times_.end() || row.measured.microseconds.p50 <= 0) return std::nullopt;
  return found->second / row.measured.microseconds.p50;
}

}  // namespace xylem::tools
