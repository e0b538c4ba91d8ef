// SPDX-License-Identifier: Apache-2.0
//
// The configuration table: one row (Setting) for everything that a person can set, with its name,
// unit, default, rule and sentence. load_config(), `xylem info` and docs/configuration.md use this
// table. A new setting needs one field of Config and one row of the table.
#pragma once

#include "config.h"
#include "xylem/base/status.h"
#include "xylem/runtime/options.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace xylem::runtime {

/// One setting. `set` parses a text into the field of Config, or fails with the rule that the text
/// breaks. `show` prints the field as text, such as "256 KiB"; "" means that the field is not set.
struct Setting {
  std::string_view name;           ///< XYLEM_…
  std::string_view field;          ///< Name of the field in Config.
  std::string_view unit;           ///< "", "bytes", "duration", "ranks", …
  std::string_view default_value;  ///< What show() prints for a default Config.
  std::string_view example;        ///< A value that set() accepts.
  std::string_view sentence;
  bool agreed = false;  ///< Must be the same on all ranks.
  bool secret = false;  ///< The value is never shown.
  Status (*set)(Config& config, std::string_view text) = nullptr;
  std::string (*show)(const Config& config) = nullptr;
  /// Returns the value that the application has set in Options, as text; nothing if it has set
  /// none. The pointer is null if Options has no such field.
  std::optional<std::string> (*from_options)(const Options& options) = nullptr;
  /// Like from_options, but the environment takes precedence over the value that this function
  /// returns.
  std::optional<std::string> (*fallback)(const Options& options) = nullptr;
};

/// Every setting, in the order of docs/configuration.md.
std::span<const Setting> settings() noexcept;

/// The whole text of docs/configuration.md.
std::string configuration_page();

}  // namespace xylem::runtime
