// SPDX-License-Identifier: Apache-2.0
//
// Flags whose values are read by the parsers that the rest of Xylem uses, so that sizes, durations
// and types are spelt alike everywhere, and help that says what CLI11's own cannot. Only for the
// sources that describe verbs.
#pragma once

#include "bench/options.h"
#include "xylem/base/status.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace xylem::tools {

/// CLI11's help under a usage line of our own.
class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(std::string usage);
  std::string make_usage(const CLI::App* verb, std::string name) const override;
  /// In the list of verbs, one line for each.
  std::string make_subcommand(const CLI::App* verb) const override;

 private:
  std::string usage_;
};

template <typename T>
using Parser = std::function<Result<T>(const std::string&)>;

/// An option whose value `parse` reads into `target`; an error names the flag and says what parse()
/// says.
template <typename Target, typename T>
CLI::Option* add_value(CLI::App& app,
                       const std::string& flags,
                       Target& target,
                       const Parser<T>& parse,
                       const std::string& type,
                       const std::string& help) {
  const std::string flag = flags.substr(0, flags.find(','));
  CLI::Option* option = app.add_option_function<std::string>(
      flags,
      [flag, parse, &target](const std::string& text) {
        auto value = parse(text);
        if (!value) throw CLI::ValidationError(flag, std::string(value.status().message()));
        target = *std::move(value);
      },
      help);
  return option->type_name(type);
}

/// Invalid unless `text` is one of `known`; the message has them all, and the nearest.
Result<std::string> one_of(const std::string& text, std::span<const std::string_view> known);

/// Reads a whole number within a range.
Parser<std::uint32_t> whole_number(std::uint32_t least, std::uint32_t most);

inline constexpr std::uint32_t kMostRanks = 4096;
/// The same of those that are only planned for; verify() takes no more.
inline constexpr std::uint32_t kMostPlannedRanks = 65535;
inline constexpr std::uint32_t kMostCalls = 1'000'000'000;

/// The flags of `bench`.
void describe_bench(CLI::App& app, BenchOptions& options);

}  // namespace xylem::tools
