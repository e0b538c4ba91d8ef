// SPDX-License-Identifier: Apache-2.0
//
// The rows of the configuration table: everything a person can set, with its name, unit, default,
// rule and sentence. load_config(), `xylem info` and docs/configuration.md are readers of it; a new
// setting is one field of Config and one row here.
#pragma once

#include "config.h"
#include "xylem/base/status.h"
#include "xylem/runtime/options.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace xylem::runtime {

/// One setting. `set` reads a text into the Config's field or refuses with the rule; `show` prints
/// the field in its unit, "" for one that is not set.
struct Setting {
  std::string_view name;           ///< XYLEM_…
  std::string_view field;          ///< Of Config.
  std::string_view unit;           ///< "", "bytes", "duration", "ranks", …
  std::string_view default_value;  ///< What show() prints for a Config of defaults; "" is not set.
  std::string_view example;        ///< A value that set() takes.
  std::string_view sentence;
  bool agreed = false;  ///< Must be alike on all ranks.
  bool secret = false;  ///< Never shown.
  Status (*set)(Config& config, std::string_view text) = nullptr;
  std::string (*show)(const Config& config) = nullptr;
  /// The program's value as text; null where Options has no such field.
  std::optional<std::string> (*from_options)(const Options& options) = nullptr;
  /// As from_options, but the environment wins over it.
  std::optional<std::string> (*fallback)(const Options& options) = nullptr;
};

/// Every setting, in the order in which people meet them.
std::span<const Setting> settings() noexcept;

/// docs/configuration.md, whole.
std::string configuration_page();

}  // namespace xylem::runtime
