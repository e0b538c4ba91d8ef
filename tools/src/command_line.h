// SPDX-License-Identifier: Apache-2.0
//
// The command line of `xylem`: turns text into the options of one verb. This header does not depend
// on the parser library, CLI11.
#pragma once

#include "bench/options.h"
#include "xylem/base/quantity.h"
#include "xylem/collectives/schedule.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace xylem::tools {

struct RunOptions {
  std::uint32_t ranks = 1;
  bool prefix = true;
  bool bind = false;    ///< Bind each rank to its share of CPUs (run/binding.h).
  std::string require;  ///< XYLEM_REQUIRE of the ranks; empty: as in the environment.
  std::optional<std::chrono::nanoseconds> timeout;
  std::vector<std::string> command;
};

struct TopoOptions {
  enum class Format : std::uint8_t { tree, matrix, json, svg, html, xml, nccl };
  Format format = Format::tree;
  std::string source;   ///< A file or description; empty: this machine.
  std::string compare;  ///< Output of nvidia-smi to compare with; empty: show the machine.
  std::string diff;     ///< File of another machine to compare with.
  std::vector<std::string> explain;  ///< One device, or two.
};

struct PlanOptions {
  /// Text about the plan and a rank's steps; a picture; or the schedules of all ranks, in the form
  /// that XYLEM_SCHEDULES reads.
  enum class Format : std::uint8_t { text, svg, schedules };
  /// The memory that holds the data. `automatic`: memory of the GPUs if each rank has a GPU,
  /// otherwise memory of the hosts.
  enum class Device : std::uint8_t { host, cuda, automatic };

  collectives::Collective collective = collectives::Collective::all_reduce;
  /// Files or descriptions, one for each host; empty: this machine.
  std::vector<std::string> sources;
  std::uint32_t ranks = 0;  ///< 0: one for each GPU, or one for each host without GPUs.
  std::uint32_t hosts = 0;  ///< The sources are repeated up to this number; 0: each is used once.
  std::string network;      ///< Facts about the network, as topology::read_network() reads them.
  Bytes bytes{std::uint64_t{1} << 20};
  std::uint32_t root = 0;
  std::string algorithm;   ///< Empty: the one with the least predicted time.
  std::uint32_t rank = 0;  ///< The rank whose steps are printed.
  Format format = Format::text;
  bool no_steps = false;
  Device device = Device::automatic;
  bool is_staged = false;  ///< Messages of GPU memory go through memory of the hosts.
  Bytes slice;             ///< XYLEM_SLICE; 0: the default for the memory.
};

/// Sizes from `begin` to `end`.
struct SizeRange {
  Bytes begin{std::uint64_t{4} << 10};
  Bytes end{std::uint64_t{1} << 30};
};

struct SimOptions {
  PlanOptions call;  ///< The call and the job; its size and output are not used.
  SizeRange sizes;
  std::uint32_t factor = 4;  ///< Each size is the one before times this.
};

struct InfoOptions {
  bool paths = false;  ///< Show how the ranks of a job reach each other.
};

/// The result if there is nothing to run: a text to print, and the exit status.
struct Answer {
  std::string text;
  int exit_status = 0;  ///< With 0, `text` goes to standard output, otherwise to standard error.
};

using Command = std::
    variant<Answer, RunOptions, BenchOptions, TopoOptions, PlanOptions, SimOptions, InfoOptions>;

/// Parses the command line. `arguments` does not include the program's name.
Command parse_command_line(const std::vector<std::string>& arguments);

}  // namespace xylem::tools
