// SPDX-License-Identifier: Apache-2.0
//
// xylem: a single command with one level of verbs.
#include "bench/bench.h"
#include "command_line.h"
#include "exit_code.h"
#include "info/info.h"
#include "info/paths.h"
#include "plan/plan.h"
#include "plan/sim.h"
#include "run/run.h"
#include "topo/topo.h"

#include <fcntl.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <system_error>
#include <type_traits>
#include <variant>
#include <vector>

namespace xylem::tools {
namespace {

int answer(const Answer& answer) {
  std::fputs(answer.text.c_str(), answer.exit_status == 0 ? stdout : stderr);
  return answer.exit_status;
}

/// The path of this program, and its arguments. The path is that with which exec() was called,
/// since a container may have no /proc.
std::vector<std::string> own_command(const std::vector<std::string>& arguments) {
  const auto* const path =
      reinterpret_cast<const char*>(::getauxval(AT_EXECFN));  // NOLINT: its type
  std::vector<std::string> command{path};
  if (command.front().find('/') == std::string::npos) command.front().insert(0, "./");
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

int run_verb(const Command& command, const std::vector<std::string>& arguments) {
  return std::visit(
      [&](const auto& options) {
        using Options = std::decay_t<decltype(options)>;
        if constexpr (std::is_same_v<Options, Answer>) return answer(options);
        else if constexpr (std::is_same_v<Options, RunOptions>) return run(options);
        else if constexpr (std::is_same_v<Options, BenchOptions>) {
          return bench(options, own_command(arguments));
        } else if constexpr (std::is_same_v<Options, TopoOptions>) return topo(options);
        else if constexpr (std::is_same_v<Options, PlanOptions>) return plan(options);
        else if constexpr (std::is_same_v<Options, SimOptions>) return sim(options);
        else return options.paths ? info_paths() : info();
      },
      command);
}

}  // namespace
}  // namespace xylem::tools

namespace {

/// Opens /dev/null in the wrong direction for each standard stream that is closed, so that using
/// the stream fails. Otherwise a file that is opened later would get the number of the stream.
void occupy_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest free number is `fd`.
    if (::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
  }
}

/// `error` is errno of the failed write, or 0 if it is unknown.
int lost_output(int error) {
  std::fprintf(stderr, "xylem: the output cannot be written%s%s\n", error != 0 ? ": " : "",
               error != 0 ? std::strerror(error) : "");
  return xylem::tools::kExitOutput;
}

}  // namespace

int main(int argc, char** argv) {
  occupy_standard_streams();
  const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  try {
    const int status =
        xylem::tools::run_verb(xylem::tools::parse_command_line(arguments), arguments);
    if (status == xylem::tools::kExitOutput) return status;  // The verb has printed the reason.
    // Flush here, since exit() would flush without reporting a failure.
    if (std::ferror(stdout) != 0) return lost_output(0);
    return std::fflush(stdout) == 0 ? status : lost_output(errno);
  } catch (const std::system_error& error) {  // fmt::print
    return lost_output(error.code().value());
  }
}
