// SPDX-License-Identifier: Apache-2.0
//
// Loads a Config from the defaults, the environment and the application's Options. For each row of
// the configuration table, the source with the highest precedence provides the text, and
// Setting::set parses it.
#include "config.h"
#include "config_table.h"
#include "xylem/base/suggest.h"

#include <fmt/format.h>

#include <algorithm>

namespace xylem::runtime {
namespace {

constexpr std::string_view kPrefix = "XYLEM_";

bool is_setting(std::string_view name) {
  const auto all = settings();
  return std::ranges::any_of(all, [name](const Setting& s) { return s.name == name; });
}

Status unknown(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Setting& setting : settings()) names.push_back(setting.name);
  const std::string_view nearest = nearest_name(name, names);
  const std::string hint = nearest.empty() ? "" : fmt::format(": did you mean {}?", nearest);
  return failure(
      Code::invalid_argument,
      fmt::format("{} is set but is not a setting of Xylem{} Unset it; `xylem info` lists "
                  "all settings",
                  name, hint.empty() ? "." : hint));
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
  loaded.config.device = options.device;
  loaded.config.has_same_memory = options.has_same_memory;
  for (const Setting& setting : settings()) {
    std::optional<std::string> text;
    std::string_view origin = "default";
    if (setting.from_options != nullptr) text = setting.from_options(options);
    if (text) {
      origin = "program";
    } else if (const auto entry = environment.find(setting.name); entry != environment.end()) {
      text = entry->second;
      origin = "environment";
    } else if (setting.fallback != nullptr) {
      text = setting.fallback(options);
      if (text) origin = "program";
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
