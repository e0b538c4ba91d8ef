// SPDX-License-Identifier: Apache-2.0
//
// The flags of `bench`.
#include "flags.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>

namespace xylem::tools {
namespace {

constexpr std::array<std::string_view, 5> kTransports{"auto", "shm", "tcp", "ucx-tcp", "ucx-rdma"};
constexpr std::uint64_t kMostOffset = 4096;
constexpr std::uint32_t kMostRoots = 1U << 31;
constexpr std::uint32_t kMostFactor = 1U << 16;

void describe_bench_sweep(CLI::App& app, BenchOptions& options) {
  const std::string group = "Sizes";
  add_value<Bytes, Bytes>(app, "-b,--begin", options.begin, parse_size, "SIZE", "Smallest size [8]")
      ->group(group);
  add_value<Bytes, Bytes>(app, "-e,--end", options.end, parse_size, "SIZE", "Largest size [64M]")
      ->group(group);
  add_value<std::uint32_t, std::uint32_t>(app, "-f,--factor", options.factor,
                                          whole_number(2, kMostFactor), "FACTOR",
                                          "From one size to the next [2]")
      ->group(group);
}

void describe_bench_call(CLI::App& app, BenchOptions& options) {
  const std::string group = "The call";
  add_value<DataType, DataType>(app, "--type", options.type, parse_data_type, "TYPE",
                                "Element type [float32]")
      ->group(group);
  add_value<RedOp, RedOp>(app, "--redop", options.redop, parse_redop, "REDOP",
                          "Reduction: sum prod min max avg and or xor premul_sum [sum]")
      ->group(group);
  add_value<std::uint32_t, std::uint32_t>(app, "--root", options.root, whole_number(0, kMostRoots),
                                          "RANK", "Root, for operations that have one [0]")
      ->group(group);
  app.add_flag("--in-place", options.in_place, "Let input and output be the same memory")
      ->group(group);
  app.add_flag("--allocate", options.allocate,
               "Take the buffers from xylem::allocate(), which ranks of a host read in place")
      ->group(group);
  add_value<DeviceOption, DeviceOption>(
      app, "--device", options.device, parse_device, "DEVICE",
      "Where buffers are: host, cuda, or cuda:K. With cuda each rank takes the device with its\n"
      "number on its host, modulo the number of devices [host]")
      ->group(group);
  app.add_flag("--stream", options.stream,
               "Make the calls in the order of a CUDA stream, and wait for the stream; needs\n"
               "--device cuda")
      ->group(group);
  add_value<Bytes, Bytes>(
      app, "--offset", options.offset,
      [](const std::string& text) -> Result<Bytes> {
        XYLEM_TRY(const Bytes bytes, parse_bytes(text));
        if (bytes.value < kMostOffset) return bytes;
        return failure(Code::invalid_argument, "an offset is less than a page, 4096 bytes");
      },
      "BYTES", "Let buffers begin at this offset in a page [0]")
      ->group(group);
  add_value<Parts, Parts>(
      app, "--parts", options.parts, choice<Parts>(kPartsNames), "even|rising|one",
      "Shares of the ranks in operations whose names end in _v: equal; 1 : 2 : ... : n; or\n"
      "nine tenths for the first rank and the rest for the second [rising]")
      ->group(group);
  app.add_option("--algorithm", options.algorithm,
                 "Force an algorithm (see xylem info) instead of choosing by size")
      ->type_name("NAME")
      ->group(group);
  add_value<std::string, std::string>(
      app, "--transport", options.transport,
      [](const std::string& text) { return one_of(text, kTransports); }, "NAME",
      fmt::format("{} [auto]", fmt::join(kTransports, ", ")))
      ->group(group);
  add_require(app, options.require)->group(group);
}

void describe_bench_method(CLI::App& app, BenchOptions& options) {
  const std::string group = "Measuring";
  const auto number = whole_number(0, kMostCalls);
  static constexpr std::array<std::string_view, 2> kSwitch{"off", "on"};
  add_value<std::optional<std::uint32_t>, std::uint32_t>(
      app, "--warmup", options.warmup, number, "CALLS", "Calls before the measurement [by size]")
      ->group(group);
  add_value<std::optional<std::uint32_t>, std::uint32_t>(
      app, "--iters", options.iterations, whole_number(1, kMostCalls), "CALLS",
      "Calls that are measured [as many as take 0.2 s]")
      ->group(group);
  add_value<bool, bool>(
      app, "--check", options.check, choice<bool>(kSwitch), "on|off",
      "Check all elements of one call before and one call after the measured ones [on]")
      ->group(group);
  app.add_flag(
         "--back-to-back", options.back_to_back,
         "Report the mean of consecutive calls, as nccl-tests does, instead of the median of\n"
         "calls that begin at a barrier")
      ->group(group);
}

void describe_operation(CLI::App& app, BenchOptions& options) {
  app.add_option_function<std::string>(
         "operation",
         [&options](const std::string& text) {
           if (text == "all") {
             options.all = true;
             for (const OperationTraits& row : operations()) {
               options.operations.push_back(row.operation);
             }
             return;
           }
           const auto operation = parse_operation(text);
           if (!operation) {
             throw CLI::ValidationError("OPERATION", std::string(operation.status().message()));
           }
           options.operations.push_back(*operation);
         },
         "What to measure")
      ->type_name("OPERATION");
}

std::string operation_lines() {
  constexpr std::size_t kOnALine = 6;
  std::string text;
  for (const OperationTraits& row : operations()) {
    const bool begins_line = static_cast<std::size_t>(row.operation) % kOnALine == 0;
    text += fmt::format("{}{}", begins_line ? "\n  " : " ", row.name);
  }
  return text;
}

}  // namespace

void describe_bench(CLI::App& app, BenchOptions& options) {
  app.description(fmt::format(
      "Measure operations between processes, and check their results\n\n"
      "Under torchrun, mpirun, srun or xylem run the launcher's ranks take part; without one,\n"
      "bench starts its own on this host. Columns, sizes and bandwidths are those of nccl-tests.\n"
      "Exit status: 0 right, 1 wrong result, 2 usage, 3 a peer was lost or time ran out,\n"
      "4 the output could not be written. Ctrl-C leaves the rows so far in the files of --json\n"
      "and --csv.\n\n"
      "OPERATION is all, or one of{}\n",
      operation_lines()));
  app.formatter(std::make_shared<HelpFormatter>("xylem bench OPERATION [OPTIONS]"));
  app.footer(
      "Examples:\n"
      "  xylem bench all_reduce -n 4\n"
      "  xylem bench all -b 1K -e 1M --json before.json\n"
      "  torchrun --no-python --nproc-per-node 8 xylem bench all_reduce");
  describe_operation(app, options);
  add_value<std::optional<std::uint32_t>, std::uint32_t>(
      app, "-n,--ranks", options.ranks, whole_number(1, kMostRanks), "N", "Ranks to start [2]");
  describe_bench_sweep(app, options);
  describe_bench_call(app, options);
  describe_bench_method(app, options);
  const std::string group = "Reporting";
  app.add_option("--json", options.json,
                 "Write the report as JSON as well; - for standard output, and the table to\n"
                 "standard error")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--csv", options.csv, "Write the rows as CSV as well; - as for --json")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--baseline", options.baseline,
                 "Add a column: the time in this earlier JSON over the time now")
      ->type_name("FILE")
      ->group(group);
}

}  // namespace xylem::tools
