// SPDX-License-Identifier: Apache-2.0
//
// Flags whose values are read by the same parsers as elsewhere in Xylem, so that sizes, durations
// and types are written in the same way everywhere; and help texts beyond what CLI11 generates.
// Only the sources that define the flags of a verb include this header.
#pragma once

#include "bench/options.h"
#include "xylem/base/quantity.h"
#include "xylem/base/status.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace xylem::tools {

/// CLI11's help with a usage line of our own.
class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(std::string usage);
  std::string make_usage(const CLI::App* verb, std::string name) const override;
  /// The line for one verb in the list of verbs.
  std::string make_subcommand(const CLI::App* verb) const override;

 private:
  std::string usage_;
};

template <typename T>
using Parser = std::function<Result<T>(const std::string&)>;

/// Adds an option whose value is read by `parse` into `target`. An error names the flag and has the
/// message of `parse`.
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

/// What to write instead of a flag of another program, such as nccl-tests or mpirun, that `verb`
/// does not have; empty if `argument` is no such flag.
std::string hint_for_foreign_flag(std::string_view verb, std::string_view argument);

/// Fails unless `text` is one of `known`; the message lists all of them, and the nearest.
Result<std::string> one_of(const std::string& text, std::span<const std::string_view> known);

/// Reads one of the words `known`. The result is the enumerator whose value is the index of the
/// word in `known`. `known` must outlive the parser.
template <typename Enum>
Parser<Enum> choice(std::span<const std::string_view> known) {
  return [known](const std::string& text) -> Result<Enum> {
    XYLEM_TRY(const std::string word, one_of(text, known));
    return static_cast<Enum>(std::ranges::find(known, word) - known.begin());
  };
}

/// Adds `--require` to a verb that starts a job.
CLI::Option* add_require(CLI::App& app, std::string& target);

/// Reads a whole number within the given range.
Parser<std::uint32_t> whole_number(std::uint32_t least, std::uint32_t most);

/// Reads a size of at least one byte.
Result<Bytes> parse_size(const std::string& text);

inline constexpr std::uint32_t kMostRanks = 4096;
/// The largest number of ranks for `xylem plan`; verify() accepts no more.
inline constexpr std::uint32_t kMostPlannedRanks = 65535;
inline constexpr std::uint32_t kMostCalls = 1'000'000'000;

/// The flags of `bench`.
void describe_bench(CLI::App& app, BenchOptions& options);

}  // namespace xylem::tools
