// SPDX-License-Identifier: Apache-2.0
//
// Parses verbs and reports errors in a command line.
#include "command_line.h"

#include "exit_code.h"
#include "flags.h"
#include "xylem/base/suggest.h"
#include "xylem/base/version.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

namespace xylem::tools {
namespace {

constexpr std::array<std::string_view, 6> kVerbs{"run", "bench", "topo", "plan", "sim", "info"};
constexpr std::array<std::string_view, 7> kFormats{"tree", "matrix", "json", "svg",
                                                   "html", "xml",    "nccl"};

constexpr std::array<std::string_view, 3> kPlanFormats{"text", "svg", "schedules"};
constexpr std::array<std::string_view, 2> kPlanDevices{"host", "cuda"};

void describe_run(CLI::App& app, RunOptions& options) {
  app.description(
      "Start N ranks of a program on this host\n\n"
      "Each line of output begins with the rank that wrote it. When one rank fails, the others\n"
      "are ended; the exit status is that of the first to fail, or 128 plus the signal that\n"
      "killed it. Standard input goes to rank 0, unless it is a terminal. Ctrl-C ends all ranks\n"
      "and the processes that they started; a second Ctrl-C kills them.\n");
  app.formatter(
      std::make_shared<HelpFormatter>("xylem run -n N [OPTIONS] [--] PROGRAM [ARGUMENTS...]"));
  app.footer(
      "Examples:\n"
      "  xylem run -n 4 -- ./train --epochs 3\n"
      "  xylem run -n 2 --timeout 10min python3 job.py\n"
      "  xylem run -n 8 --bind -- ./train");
  app.prefix_command();
  add_value<std::uint32_t, std::uint32_t>(app, "-n,--ranks", options.ranks,
                                          whole_number(1, kMostRanks), "N", "Ranks to start")
      ->required();
  add_value<std::optional<std::chrono::nanoseconds>, std::chrono::nanoseconds>(
      app, "--timeout", options.timeout, parse_duration, "TIME",
      "End the job after this time, with status 124 (90s, 10min)");
  app.add_flag(
      "--bind", options.bind,
      "Let each rank run on its share of the CPUs near its GPU or, without GPUs, of all CPUs\n"
      "(xylem plan shows the shares)");
  add_require(app, options.require);
  app.add_flag(
      "--no-prefix", [&options](std::int64_t) { options.prefix = false; },
      "Write lines as they are, without the rank");
}

void describe_topo(CLI::App& app, TopoOptions& options) {
  app.description(
      "Show what a machine is made of: NUMA nodes, GPUs, NICs and paths\n\n"
      "FILE is XML of hwloc (lstopo machine.xml) or NCCL (NCCL_TOPO_DUMP_FILE), JSON of Xylem,\n"
      "or a one-line description. Without FILE, this machine is shown.\n");
  app.formatter(std::make_shared<HelpFormatter>("xylem topo [OPTIONS] [FILE]"));
  app.footer(
      "Examples:\n"
      "  xylem topo\n"
      "  xylem topo --format matrix machine.xml\n"
      "  xylem topo --format svg '2 packages, 8 gpus, 1 nic/gpu, nvswitch' > server.svg\n"
      "  nvidia-smi topo -m > smi.txt; xylem topo --compare smi.txt\n"
      "  xylem topo node1.xml --diff node2.xml\n\n"
      "Exit status: 0 on success; 1 if something differs; 2 if a file cannot be read");
  app.add_option("file", options.source, "Machine to show instead of this one")->type_name("FILE");
  add_value<TopoOptions::Format, TopoOptions::Format>(
      app, "--format", options.format, choice<TopoOptions::Format>(kFormats), "FORMAT",
      "tree, matrix (as nvidia-smi topo -m), json, svg, html, xml (of hwloc) or nccl [tree]");
  CLI::Option* const compare = app.add_option(
      "--compare", options.compare,
      "List the cells that differ from SMI, the output of nvidia-smi topo -m (or -mp)");
  CLI::Option* const diff = app.add_option(
      "--diff", options.diff, "List the differences to FILE, a machine of the same kind");
  CLI::Option* const explain = app.add_option(
      "--explain", options.explain,
      "Say where a device (gpu0) is and which NICs serve it; for two devices, show the path");
  compare->type_name("SMI")->excludes(diff)->excludes(explain);
  diff->type_name("FILE")->excludes(explain);
  explain->type_name("DEVICE")->expected(1, 2);
}

/// The flags that define the call and the job for which a plan is made.
void describe_planned_job(CLI::App& app, PlanOptions& options) {
  add_value<collectives::Collective, collectives::Collective>(
      app, "operation", options.collective,
      [](const std::string& text) { return collectives::parse_collective(text); }, "OPERATION",
      "all_reduce, reduce, broadcast, all_gather, reduce_scatter, all_to_all, gather, scatter or "
      "barrier")
      ->required();
  app.add_option("file", options.sources, "Machines to plan for instead of this one")
      ->type_name("FILE");
  add_value<std::uint32_t, std::uint32_t>(app, "-n,--ranks", options.ranks,
                                          whole_number(1, kMostPlannedRanks), "N",
                                          "Ranks in all [one for each GPU]");
  add_value<std::uint32_t, std::uint32_t>(app, "--hosts", options.hosts,
                                          whole_number(1, kMostPlannedRanks), "N",
                                          "Number of hosts; the machines are repeated [each once]");
  app.add_option("--network", options.network,
                 "The network between the hosts: oversubscription N, latency N us, rail N Gb/s")
      ->type_name("TEXT");
  add_value<std::uint32_t, std::uint32_t>(
      app, "--root", options.root, whole_number(0, kMostPlannedRanks - 1), "RANK", "Root [0]");
  app.add_option("--algorithm", options.algorithm,
                 "Plan with this algorithm, even if another one is faster")
      ->type_name("NAME");
  using Device = PlanOptions::Device;
  add_value<Device, Device>(
      app, "--device", options.device, choice<Device>(kPlanDevices), "DEVICE",
      "Whose memory has the data: host or cuda [cuda if each rank has a GPU]");
  app.add_flag("--staged", options.is_staged,
               "Send GPU memory between hosts through pinned memory, as Xylem does today, and not\n"
               "directly over NVLink and the network");
  add_value<Bytes, Bytes>(
      app, "--slice", options.slice, parse_size, "SIZE",
      "Slices of this size, as XYLEM_SLICE sets [256K; 4M if GPUs send directly]");
}

/// The flags that select the output of `plan`.
void describe_plan_output(CLI::App& app, PlanOptions& options) {
  add_value<std::uint32_t, std::uint32_t>(app, "--rank", options.rank,
                                          whole_number(0, kMostPlannedRanks - 1), "RANK",
                                          "The rank whose steps are printed [0]");
  using Format = PlanOptions::Format;
  add_value<Format, Format>(
      app, "--format", options.format, choice<Format>(kPlanFormats), "FORMAT",
      "text; svg: a picture of the messages between ranks over time; or schedules: those of all "
      "ranks, for XYLEM_SCHEDULES [text]");
  app.add_flag("--no-steps", options.no_steps, "Leave the steps out");
}

void describe_plan(CLI::App& app, PlanOptions& options) {
  app.description(
      "Show what Xylem would do for a call, and why\n\n"
      "Chooses the algorithm with the least predicted time for one or more machines. Proves the\n"
      "plan of all ranks for every interleaving, unless these are too many. Prints the place and\n"
      "the steps of a rank.\n"
      "FILE is as for topo, one for each host; without any, the plan is for this machine. Sizes\n"
      "are those of bench.\n");
  app.formatter(std::make_shared<HelpFormatter>("xylem plan OPERATION [OPTIONS] [FILE...]"));
  app.footer(
      "Examples:\n"
      "  xylem plan all_reduce --ranks 4 --bytes 64M\n"
      "  xylem plan broadcast '2 packages, 8 gpus, 1 nic/gpu, nvswitch' --hosts 4 --root 3\n"
      "  xylem plan all_reduce node1.xml node2.xml --network 'oversubscription 2, latency 5 us'\n"
      "  xylem plan all_reduce '4 gpus' --hosts 2 --format svg > plan.svg\n"
      "  xylem plan all_reduce --ranks 4 --algorithm ring --format schedules > ring.txt\n"
      "  xylem plan all_reduce '8 gpus, 1 nic/gpu, nvswitch' --hosts 4 --bytes 1G --staged\n\n"
      "Exit status: 0, even without a proof; 1 if the plan is wrong; 2 if it cannot be made");
  describe_planned_job(app, options);
  add_value<Bytes, Bytes>(app, "-b,--bytes", options.bytes, parse_bytes, "SIZE",
                          "Data of the call, as bench counts it [1M]");
  describe_plan_output(app, options);
}

/// "1M", or a range such as "4K-1G".
Result<SizeRange> parse_sizes(std::string_view text) {
  const auto dash = text.find('-');
  const auto begin = parse_bytes(text.substr(0, dash));
  const auto end = dash == std::string_view::npos ? begin : parse_bytes(text.substr(dash + 1));
  if (begin && end && *begin <= *end) return SizeRange{*begin, *end};
  return failure(Code::invalid_argument,
                 "it must be a size, or a range from a smaller to a larger one, such as 4K-1G");
}

void describe_sim(CLI::App& app, SimOptions& options) {
  app.description(
      "Predict a call on machines that need not exist\n\n"
      "For each size: the algorithm that Xylem would choose, its predicted time and bus\n"
      "bandwidth, how busy the busiest port of the network is, the peers and scratch of a rank,\n"
      "and whether the plan of all ranks is proved. FILE is as for topo, one for each host.\n");
  app.formatter(std::make_shared<HelpFormatter>("xylem sim OPERATION [OPTIONS] [FILE...]"));
  app.footer(
      "Examples:\n"
      "  xylem sim all_reduce '8 gpus, 1 nic/gpu 400 Gb/s, nvswitch' --hosts 1250 --bytes 1G\n"
      "  xylem sim all_gather node.xml --hosts 64 --bytes 4K-1G --factor 16\n\n"
      "Exit status: 0, even without a proof; 1 if a plan is wrong; 2 if it cannot be made");
  describe_planned_job(app, options.call);
  add_value<SizeRange, SizeRange>(app, "-b,--bytes", options.sizes, parse_sizes, "SIZES",
                                  "Data of the call, as bench counts it, or a range [4K-1G]");
  add_value<std::uint32_t, std::uint32_t>(app, "-f,--factor", options.factor,
                                          whole_number(2, 1U << 20), "N",
                                          "Each size is the one before times N [4]");
}

void describe_info(CLI::App& app, InfoOptions& options) {
  app.description(
      "Show what Xylem would do here, and why\n\n"
      "Versions, every setting with the origin of its value, UCX_ variables, transports and\n"
      "devices, the network interface chosen, GPUs and their driver, algorithms.\n\n"
      "With --paths, under a launcher: how each rank of the job reaches the others, with the\n"
      "latencies and rates measured at its start, and which hosts are slow.\n");
  app.add_flag("--paths", options.paths, "Show the paths between the ranks of a job");
  app.formatter(std::make_shared<HelpFormatter>("xylem info"));
}

/// Splits `xylem run -n 2 -- ls -l` at the first "--".
struct Split {
  std::vector<std::string> head;
  std::optional<std::vector<std::string>> tail;
};
Split split_command(const std::vector<std::string>& arguments) {
  const auto mark =
      arguments.front() == "run" ? std::ranges::find(arguments, "--") : arguments.end();
  Split split{{arguments.begin(), mark}, std::nullopt};
  if (mark != arguments.end()) split.tail.emplace(mark + 1, arguments.end());
  return split;
}

/// Sets `options.command` to the program and its arguments: the words `rest`, which are not flags
/// of `run`, and the words `tail`, which follow "--".
Status take_command(std::vector<std::string> rest,
                    const std::optional<std::vector<std::string>>& tail,
                    RunOptions& options) {
  options.command = std::move(rest);
  if (tail) {
    // The "--" follows the program's name, so it is an argument of the program.
    if (!options.command.empty()) options.command.emplace_back("--");
    options.command.insert(options.command.end(), tail->begin(), tail->end());
  }
  if (!options.command.empty()) return {};
  return failure(Code::invalid_argument, "say which program to start: xylem run -n 2 -- PROGRAM");
}

Status check_bench(const BenchOptions& options) {
  if (options.operations.empty()) {
    return failure(Code::invalid_argument, "say what to measure: xylem bench all_reduce");
  }
  if (!options.json.empty() && options.json == options.csv) {
    return failure(Code::invalid_argument,
                   fmt::format("--json and --csv both write {}: name two files", options.json));
  }
  if (options.begin <= options.end) return {};
  return failure(Code::invalid_argument,
                 fmt::format("-b {} is more than -e {}: sizes go from the smallest to the largest",
                             format_bytes(options.begin), format_bytes(options.end)));
}

Answer usage_error(std::string_view verb, std::string_view message) {
  const std::string program = verb.empty() ? "xylem" : fmt::format("xylem {}", verb);
  return {fmt::format("{0}: {1}\nSee {0} --help.\n", program, message), kExitUsage};
}

/// Handles a first word that is neither a flag nor a verb, and a missing verb; CLI11 would only
/// report it as unexpected.
std::optional<Answer> missing_verb(const std::vector<std::string>& arguments) {
  if (arguments.empty())
    return usage_error("", "say what to do: run, bench, topo, plan, sim or info");
  if (arguments.front().starts_with('-')) return std::nullopt;
  const auto verb = one_of(arguments.front(), kVerbs);
  if (verb) return std::nullopt;
  return usage_error("", verb.status().message());
}

std::vector<std::string> names_of_flags(const CLI::App& verb) {
  std::vector<std::string> names;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

/// The message about the first flag that the verb does not have. It suggests a similar flag. For
/// `run`, flags after the name of the program belong to the program.
std::optional<std::string> unknown_flag(const CLI::App& verb,
                                        const std::vector<std::string>& arguments) {
  const std::vector<std::string> names = names_of_flags(verb);
  const std::vector<std::string_view> known(names.begin(), names.end());
  const bool begins_with_verb = arguments.front() == verb.get_name();
  for (std::size_t i = begins_with_verb ? 1 : 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!argument.starts_with('-') || argument == "-") {
      if (verb.get_name() == "run") break;
      continue;
    }
    std::string foreign = hint_for_foreign_flag(verb.get_name(), argument);
    if (!foreign.empty()) return foreign;
    const std::string flag =
        argument.starts_with("--") ? argument.substr(0, argument.find('=')) : argument.substr(0, 2);
    if (std::ranges::find(known, flag) == known.end()) {
      const auto nearest = nearest_name(flag, known);
      return fmt::format("{}: no such flag{}", flag,
                         nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest));
    }
    const bool takes_value = verb.get_option(flag)->get_items_expected_min() > 0;
    if (takes_value && flag == argument) ++i;  // The next argument is its value.
  }
  return std::nullopt;
}

}  // namespace

Command parse_command_line(const std::vector<std::string>& arguments) {
  if (auto answer = missing_verb(arguments)) return *std::move(answer);
  RunOptions run;
  BenchOptions bench;
  TopoOptions topo;
  PlanOptions plan;
  SimOptions sim;
  InfoOptions info;
  CLI::App app("Topology-aware collective communication: start, measure and inspect.\n", "xylem");
  app.set_version_flag("--version", "xylem " XYLEM_VERSION, "Print the version and exit");
  app.formatter(std::make_shared<HelpFormatter>("xylem VERB [OPTIONS]"));
  app.require_subcommand(0, 1);
  CLI::App& run_verb = *app.add_subcommand("run");
  CLI::App& bench_verb = *app.add_subcommand("bench");
  CLI::App& topo_verb = *app.add_subcommand("topo");
  CLI::App& plan_verb = *app.add_subcommand("plan");
  CLI::App& sim_verb = *app.add_subcommand("sim");
  CLI::App& info_verb = *app.add_subcommand("info");
  app.footer("xylem VERB --help describes a verb.");
  describe_run(run_verb, run);
  describe_bench(bench_verb, bench);
  describe_topo(topo_verb, topo);
  describe_plan(plan_verb, plan);
  describe_sim(sim_verb, sim);
  describe_info(info_verb, info);

  const Split split = split_command(arguments);
  const auto verb = [&] {
    const auto parsed = app.get_subcommands();
    return parsed.empty() ? &app : parsed.front();
  };
  const auto name = [&] { return verb() == &app ? std::string() : verb()->get_name(); };
  try {
    std::vector<std::string> last_first(split.head.rbegin(), split.head.rend());
    app.parse(std::move(last_first));
  } catch (const CLI::CallForHelp&) {
    return Answer{app.help(), kExitRight};
  } catch (const CLI::CallForVersion& version) {
    return Answer{std::string(version.what()) + '\n', kExitRight};
  } catch (const CLI::ExtrasError&) {
    return usage_error(name(), unknown_flag(*verb(), arguments)
                                   .value_or(fmt::format("more than it takes: {}",
                                                         fmt::join(verb()->remaining(), " "))));
  } catch (const CLI::ParseError& error) {
    return usage_error(name(), unknown_flag(*verb(), arguments).value_or(error.what()));
  }
  if (run_verb) {
    if (const auto unknown = unknown_flag(run_verb, split.head))
      return usage_error("run", *unknown);
    const Status status = take_command(run_verb.remaining(), split.tail, run);
    return status ? Command(std::move(run)) : usage_error("run", status.message());
  }
  if (bench_verb) {
    const Status status = check_bench(bench);
    return status ? Command(std::move(bench)) : usage_error("bench", status.message());
  }
  if (topo_verb) return topo;
  if (plan_verb) return plan;
  if (sim_verb) return sim;
  return info;
}

}  // namespace xylem::tools
