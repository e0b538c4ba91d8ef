// SPDX-License-Identifier: Apache-2.0
//
// Values that several verbs use, and the format of help.
#include "flags.h"

#include "xylem/base/suggest.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace xylem::tools {
namespace {

/// A flag of another program, by its names, and what to write instead.
struct ForeignFlag {
  std::string_view verb;
  std::array<std::string_view, 3> names;
  std::string_view origin;
  std::string_view remedy;
};

constexpr std::string_view kNcclTests = "nccl-tests";
constexpr std::string_view kMpirun = "mpirun";
constexpr std::string_view kOneHost =
    "xylem run starts ranks on this host; mpirun, srun and torchrun start them on several";
constexpr std::array kForeignFlags = std::to_array<ForeignFlag>({
    {"bench", {"-g", "--ngpus"}, kNcclTests, "use -n RANKS --device cuda: a rank has one GPU"},
    {"bench", {"-t", "--nthreads"}, kNcclTests, "use -n RANKS: ranks are processes"},
    {"bench", {"-w", "--warmup_iters"}, kNcclTests, "use --warmup CALLS"},
    {"bench", {"-c"}, kNcclTests, "use --check on|off"},
    {"bench", {"-m", "--agg_iters"}, kNcclTests, "use --back-to-back: no barrier between calls"},
    {"bench", {"-i", "--stepbytes"}, kNcclTests, "use -f FACTOR: sizes grow by a factor"},
    {"bench", {"--stepfactor"}, kNcclTests, "use -f FACTOR"},
    {"bench", {"--minbytes"}, kNcclTests, "use -b SIZE"},
    {"bench", {"--maxbytes"}, kNcclTests, "use -e SIZE"},
    {"bench", {"-o", "--op"}, kNcclTests, "use --redop REDOP"},
    {"bench", {"-d", "--datatype"}, kNcclTests, "use --type TYPE"},
    {"bench", {"-r"}, kNcclTests, "use --root RANK"},
    {"bench", {"-J", "--output_file"}, kNcclTests, "use --json FILE"},
    {"bench", {"-np", "--np"}, kMpirun, "use -n RANKS"},
    {"run", {"-np", "--np"}, kMpirun, "use -n RANKS"},
    {"run", {"--nproc-per-node", "--nproc_per_node"}, "torchrun", "use -n RANKS"},
    {"run", {"--hosts", "--host", "-H"}, kMpirun, kOneHost},
    {"run", {"--hostfile", "--machinefile", "-f"}, kMpirun, kOneHost},
    {"run", {"--nnodes"}, "torchrun", kOneHost},
    {"run", {"-N", "--nodes"}, "srun", kOneHost},
});

}  // namespace

std::string hint_for_foreign_flag(std::string_view verb, std::string_view argument) {
  // "-g1" and "--ngpus=1" contain their value. Only "-np" is a short name of two letters.
  const std::string_view flag = argument.starts_with("--") || argument == "-np"
                                    ? argument.substr(0, argument.find('='))
                                    : argument.substr(0, 2);
  for (const ForeignFlag& foreign : kForeignFlags) {
    if (foreign.verb == verb && std::ranges::find(foreign.names, flag) != foreign.names.end()) {
      return fmt::format("{}: no such flag ({} has one): {}", flag, foreign.origin, foreign.remedy);
    }
  }
  return {};
}

HelpFormatter::HelpFormatter(std::string usage) : usage_(std::move(usage)) {
  constexpr std::size_t kDescriptionsFrom = 26;
  column_width(kDescriptionsFrom);
}

std::string HelpFormatter::make_usage(const CLI::App* /*verb*/, std::string /*name*/) const {
  return "Usage: " + usage_ + "\n";
}

std::string HelpFormatter::make_subcommand(const CLI::App* verb) const {
  const std::string whole = verb->get_description();
  return fmt::format("  {:<8}{}\n", verb->get_name(), whole.substr(0, whole.find('\n')));
}

Result<std::string> one_of(const std::string& text, std::span<const std::string_view> known) {
  if (std::ranges::find(known, text) != known.end()) return text;
  const auto nearest = nearest_name(text, known);
  return failure(Code::invalid_argument,
                 fmt::format("\"{}\" is none of {}{}", text, fmt::join(known, ", "),
                             nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest)));
}

CLI::Option* add_require(CLI::App& app, std::string& target) {
  static constexpr std::array<std::string_view, 3> kRequirements{"shm", "tcp", "rdma"};
  return add_value<std::string, std::string>(
      app, "--require", target, [](const std::string& text) { return one_of(text, kRequirements); },
      "shm|tcp|rdma",
      "Fail at the start, instead of falling back, unless all ranks share memory (shm), or\n"
      "ranks on different hosts use TCP or RDMA; sets XYLEM_REQUIRE");
}

Parser<std::uint32_t> whole_number(std::uint32_t least, std::uint32_t most) {
  return [least, most](const std::string& text) -> Result<std::uint32_t> {
    std::uint32_t value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && stop == end && value >= least && value <= most) return value;
    return failure(Code::invalid_argument,
                   fmt::format("\"{}\" is no whole number from {} to {}", text, least, most));
  };
}

Result<Bytes> parse_size(const std::string& text) {
  XYLEM_TRY(const Bytes size, parse_bytes(text));
  if (size.value > 0) return size;
  return failure(Code::invalid_argument, "a size is at least 1 byte");
}

}  // namespace xylem::tools
