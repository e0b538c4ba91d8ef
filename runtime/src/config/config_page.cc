// SPDX-License-Identifier: Apache-2.0
//
// Makes the text of docs/configuration.md from the configuration table; a test compares this text
// with the file.
#include "config_table.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace xylem::runtime {
namespace {

/// The text in lines of at most 120 characters.
std::string wrapped(std::string_view text) {
  constexpr std::size_t kWidth = 120;
  std::string lines;
  while (text.size() > kWidth) {
    const std::size_t blank = text.rfind(' ', kWidth);
    if (blank == std::string_view::npos) break;  // One long word.
    lines.append(text.substr(0, blank)).append("\n");
    text.remove_prefix(blank + 1);
  }
  return lines.append(text);
}

}  // namespace

std::string configuration_page() {
  std::string page =
      "# Configuration\n"
      "\n"
      "Every setting is an environment variable; those that `xylem::Options` has too can be set by "
      "the program,\nwhich then wins over the environment. `xylem info` shows each with its value "
      "and where the value came from.\n"
      "\n"
      "- A variable that starts with `XYLEM_` and is not in this table is an error that names the "
      "nearest setting.\n"
      "- A value that its setting does not take is an error that names the value, the rule and an "
      "example.\n"
      "- Settings marked *agreed* must be alike on all ranks. A difference fails the start with "
      "`mismatch`, which names\n  the variable.\n"
      "- Durations are a number and ns, us, ms, s, min or h; a number alone is in seconds. Sizes "
      "are a number and K, M, G or\n  T, which are powers of 1024.\n"
      "- Files that settings name are read within `XYLEM_START_TIMEOUT`, and must be regular "
      "files. "
      "A FIFO, a device or a file\n  that is too long is an error.\n"
      "\n"
      "This page is printed from the table in `runtime/src/config/config_table.cc`.\n";
  for (const Setting& setting : settings()) {
    const bool in_options = setting.from_options != nullptr;
    page += fmt::format("\n## {}\n\n{}\n\n", setting.name, wrapped(setting.sentence));
    page +=
        "| default | unit | example | in `Options` | agreed |\n| --- | --- | --- | --- | --- |\n";
    page += fmt::format(
        "| {} | {} | `{}` | {} | {} |\n",
        setting.default_value.empty() ? "not set" : fmt::format("`{}`", setting.default_value),
        setting.unit.empty() ? "text" : setting.unit, setting.example,
        in_options ? fmt::format("`{}`", setting.field) : "no", setting.agreed ? "yes" : "no");
  }
  return page;
}

}  // namespace xylem::runtime
