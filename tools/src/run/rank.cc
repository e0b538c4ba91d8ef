// SPDX-License-Identifier: Apache-2.0
//
// Pipes, streams and environment of a rank.
#include "run/rank.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace xylem::tools {
namespace {

struct Pipe {
  UniqueFd read_end, write_end;
};

/// Reads from the read end do not block, so a reader can read until nothing is left.
Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return failure(
        Code::exhausted,
        fmt::format("cannot make a pipe: {}; `ulimit -n` may be too low for so many ranks",
                    std::generic_category().message(errno)));
  }
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

Result<std::string> random_text(std::size_t bytes) {
  std::string text;
  std::vector<unsigned char> random(bytes);
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) {
    return failure(Code::exhausted, fmt::format("cannot get random bytes: {}",
                                                std::generic_category().message(errno)));
  }
  for (const unsigned char byte : random) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace

Result<Rank> start_rank(const RankOptions& options, Sink& output, Sink& error) {
  ProcessOptions process = options.process;
  UniqueFd nothing;
  if (!options.first || ::isatty(STDIN_FILENO) != 0) {
    nothing.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    process.input = nothing.get();
  }
  Rank rank;
  Pipe output_pipe;
  Pipe error_pipe;
  if (!options.direct) {
    XYLEM_TRY(output_pipe, make_pipe());
    XYLEM_TRY(error_pipe, make_pipe());
    process.output = output_pipe.write_end.get();
    process.error = error_pipe.write_end.get();
    rank.output = OutputStream(std::move(output_pipe.read_end), output, options.prefix);
    rank.error = OutputStream(std::move(error_pipe.read_end), error, options.prefix);
  }
  XYLEM_TRY(rank.process, Process::start(process));
  return rank;
}

Result<Membership> Membership::create(std::uint32_t ranks) {
  constexpr std::size_t kJobBytes = 8;
  constexpr std::size_t kSecretBytes = 32;
  XYLEM_TRY(std::string job, random_text(kJobBytes));
  XYLEM_TRY(std::string secret, random_text(kSecretBytes));
  XYLEM_TRY(PrivateDirectory directory, PrivateDirectory::create());
  return Membership(std::move(directory), ranks, std::move(job), std::move(secret));
}

std::vector<std::pair<std::string, std::string>> Membership::environment(std::uint32_t rank) const {
  return {{"XYLEM_RANK", std::to_string(rank)},
          {"XYLEM_SIZE", std::to_string(ranks_)},
          {"XYLEM_RENDEZVOUS", "file://" + directory_.path().string()},
          {"XYLEM_JOB", job_},
          {"XYLEM_SECRET", secret_}};
}

}  // namespace xylem::tools
