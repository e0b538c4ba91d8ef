// SPDX-License-Identifier: Apache-2.0
//
// From defaults, environment and program to one Config: each row of the table is given at most one
// text, by whoever of them speaks last, and every text goes through the row's own reader.
#include "config.h"

#include "config_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace xylem::runtime {
namespace {

constexpr std::string_view kPrefix = "XYLEM_";

/// Insertions, deletions and replacements that turn one name into the other.
std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t replaced = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

bool is_setting(std::string_view name) {
  const auto all = settings();
  return std::any_of(all.begin(), all.end(), [name](const Setting& s) { return s.name == name; });
}

Status unknown(std::string_view name) {
  const auto all = settings();
  const auto nearest =
      std::min_element(all.begin(), all.end(), [name](const auto& a, const auto& b) {
        return edit_distance(a.name, name) < edit_distance(b.name, name);
      });
  return failure(Code::invalid_argument,
                 fmt::format("{} is set but is not a setting of Xylem: did you mean {}? Unset it; "
                             "`xylem info` lists all settings",
                             name, nearest->name));
}

Status refused(const Setting& setting,
               std::string_view origin,
               std::string_view text,
               std::string_view rule) {
  const std::string shown = setting.secret ? "" : fmt::format(" \"{}\"", text);
  return failure(Code::invalid_argument,
                 fmt::format("{}{} (from the {}): {}, for example {}", setting.name, shown, origin,
                             rule, setting.example));
}

}  // namespace

Result<LoadedConfig> load_config(const Environment& environment, const Options& options) {
  for (auto entry = environment.lower_bound(kPrefix);
       entry != environment.end() && entry->first.starts_with(kPrefix); ++entry) {
    if (!is_setting(entry->first)) return unknown(entry->first);
  }

  LoadedConfig loaded;
  for (const Setting& setting : settings()) {
    std::optional<std::string> text;
    std::string_view origin = "default";
    if (setting.from_options != nullptr && (text = setting.from_options(options))) {
      origin = "program";
    } else if (const auto entry = environment.find(setting.name); entry != environment.end()) {
      text = entry->second;
      origin = "environment";
    }
    if (text) {
      if (const Status status = setting.set(loaded.config, *text); !status) {
        return refused(setting, origin, *text, status.message());
      }
    }
    loaded.rows.push_back(ConfigRow{.name = std::string(setting.name),
                                    .value = setting.show(loaded.config),
                                    .default_value = std::string(setting.default_value),
                                    .origin = std::string(origin),
                                    .unit = std::string(setting.unit),
                                    .sentence = std::string(setting.sentence),
                                    .agreed = setting.agreed});
  }
  return loaded;
}

std::string agreed_settings(const LoadedConfig& loaded) {
  std::string text;
  for (const ConfigRow& row : loaded.rows) {
    if (row.agreed) text += fmt::format("{}={}\n", row.name, row.value);
  }
  return text;
}

}  // namespace xylem::runtime
