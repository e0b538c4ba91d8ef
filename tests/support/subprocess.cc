// SPDX-License-Identifier: Apache-2.0
#include "support/subprocess.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

namespace xylem::test {
namespace {

/// Prepares a child process: it ends when its parent ends, and of the XYLEM_ variables it keeps
/// only those in `environment`.
bool prepare(const std::map<std::string, std::string>& environment) {
  for (char** variable = environ; *variable != nullptr;) {
    const std::string text(*variable), name = text.substr(0, text.find('='));
    const bool is_kept = !name.starts_with("XYLEM_") || environment.contains(name);
    if (is_kept || ::unsetenv(name.c_str()) != 0) ++variable;
  }
  return ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
}

}  // namespace

Process::Process(const std::vector<std::string>& arguments,
                 const std::map<std::string, std::string>& environment)
    : command_(std::make_unique<Command>(arguments,
                                         Command::Variables(environment.begin(), environment.end()),
                                         [&] { return prepare(environment); })) {}

Exit Process::wait(std::chrono::milliseconds limit) {
  const Finished finished = command_->wait(Deadline::after(limit));
  return {finished.signal == 0 ? finished.exit_status : 128 + finished.signal,
          finished.out + finished.err};
}

std::vector<Process> start_ranks(const TemporaryDirectory& directory,
                                 std::uint32_t ranks,
                                 const std::string& program,
                                 const std::vector<std::string>& arguments,
                                 const std::map<std::string, std::string>& environment) {
  std::vector<Process> processes;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    std::map<std::string, std::string> variables = environment;
    variables["XYLEM_RANK"] = std::to_string(rank);
    variables["XYLEM_SIZE"] = std::to_string(ranks);
    variables.try_emplace("XYLEM_RENDEZVOUS", "file://" + directory.path());
    variables.try_emplace("XYLEM_JOB", directory.path());
    variables.try_emplace("XYLEM_TUNING", "off");
    std::vector<std::string> command{std::string(XYLEM_TEST_BIN) + "/" + program};
    command.insert(command.end(), arguments.begin(), arguments.end());
    processes.emplace_back(command, variables);
  }
  return processes;
}

}  // namespace xylem::test
