// SPDX-License-Identifier: Apache-2.0
//
// A rank of the contract test: what docs/threading.md promises of fork, signals and stopped
// processes.
//
//   contract_rank fork | signals | loop | ports | silence
#include "xylem/xylem.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace {

using xylem::Code;

int fail(const char* what, const std::string& detail) {
  std::printf("%s: %s\n", what, detail.c_str());
  return 1;
}

xylem::Status all_reduce(const xylem::Communicator& comm, std::size_t count) {
  std::vector<float> in(count, 1.0F), out(count);
  const auto status = comm.all_reduce(std::span<const float>(in), std::span(out)).wait();
  if (status && out.back() != static_cast<float>(comm.size()))
    return xylem::failure(Code::internal, "wrong sum");
  return status;
}

/// In a forked child every call is refused, and its end disturbs nobody.
int child(xylem::Runtime& runtime, const xylem::Work& pending) {
  // A loop over test() ends, and status() says why.
  if (!pending.test() || !pending.ended()) return 9;
  if (pending.status().code() != Code::invalid_argument) return 10;
  if (pending.wait().code() != Code::invalid_argument) return 5;
  if (!runtime.paths().empty()) return 6;
  if (runtime.world().plan_info("all_reduce", 8, xylem::DataType::float32).code() !=
      Code::invalid_argument)
    return 7;
  const auto status = all_reduce(runtime.world(), 8);
  if (status.code() != Code::invalid_argument ||
      status.message().find("forked") == std::string_view::npos)
    return 3;
  auto held = runtime.world();
  if (held.destroy().code() != Code::invalid_argument) return 8;
  return runtime.shutdown().code() == Code::invalid_argument ? 0 : 4;
}

int ended_well(pid_t pid) {
  int ended = 0;
  waitpid(pid, &ended, 0);
  if (!WIFEXITED(ended) || WEXITSTATUS(ended) != 0) return fail("child", std::to_string(ended));
  return 0;
}

/// A child of a rank whose runtime has shut down drops the last handles to it, while the others of
/// the job still use theirs.
int test_fork_after_shutdown(xylem::Runtime& runtime) {
  auto world = runtime.world();
  const bool leaves_first = world.rank() == 0;
  if (leaves_first && !runtime.shutdown()) return fail("shutdown", "0");
  const pid_t pid = fork();
  if (pid == 0) {
    world = {};
    const xylem::Runtime goes = std::move(runtime);
    _exit(0);
  }
  return ended_well(pid);
}

int test_fork(xylem::Runtime& runtime) {
  const auto world = runtime.world();
  for (const bool unwinds : {false, true}) {
    // Sent once all have forked: the all_reduce below is between.
    std::vector<float> from_before(8), to_next(8, 1.0F);
    const auto n = world.size(), me = world.rank();
    const auto pending = world.recv(std::span(from_before), (me + n - 1) % n, 1);
    const pid_t pid = fork();
    if (pid == 0) {
      const int result = child(runtime, pending);
      if (unwinds) {
        const xylem::Runtime goes =
            std::move(runtime);  // as a data loader's worker that leaves by exit()
      }
      _exit(result);
    }
    if (const auto status = all_reduce(world, 1000); !status)
      return fail("beside a child", status.to_string());
    if (!world.send(std::span<const float>(to_next), (me + 1) % n, 1).wait() || !pending.wait())
      return fail("message beside a child", pending.status().to_string());
    if (const int result = ended_well(pid); result != 0) return result;
    if (const auto status = all_reduce(world, 1000); !status)
      return fail("after a child", status.to_string());
  }
  return test_fork_after_shutdown(runtime);
}

volatile sig_atomic_t ticks = 0;

/// A program with handlers of its own, interrupted a thousand times a second.
int test_signals(xylem::Runtime& runtime) {
  struct sigaction action {};
  action.sa_handler = [](int) { ticks = ticks + 1; };
  sigaction(SIGALRM, &action, nullptr);
  const itimerval every{{0, 1000}, {0, 1000}};
  setitimer(ITIMER_REAL, &every, nullptr);
  // All go on until each has been interrupted often enough: the ranks agree on that after every
  // call.
  for (float enough = 0; enough == 0;) {
    if (const auto status = all_reduce(runtime.world(), 5000); !status)
      return fail("interrupted", status.to_string());
    const float mine = ticks >= 200 ? 1 : 0;
    const auto status = runtime.world()
                            .all_reduce(std::span<const float>(&mine, 1),
                                        std::span<float>(&enough, 1), xylem::RedOp::min)
                            .wait();
    if (!status) return fail("interrupted", status.to_string());
  }
  return 0;
}

/// Until a rank is lost or the parent kills it; prints a line per hundred calls.
int test_loop(xylem::Runtime& runtime) {
  for (int i = 0;; ++i) {
    if (const auto status = all_reduce(runtime.world(), 100); !status)
      return fail("ended", status.to_string());
    if (i % 100 == 0) {
      std::printf("going\n");
      std::fflush(stdout);
    }
  }
}

/// Descriptors at which others may connect.
int count_listeners() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    int listens = 0;
    socklen_t size = sizeof listens;
    const int fd = std::stoi(entry.path().filename().string());
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0) ++count;
  }
  return count;
}

int test_ports(const xylem::Runtime& runtime) {
  if (const auto status = all_reduce(runtime.world(), 100'000); !status)
    return fail("ports", status.to_string());
  const int open = count_listeners();
  return open == 0 ? 0 : fail("ports that are open", std::to_string(open));
}

/// Of four ranks the first two make a call, and the others have said that they did not, when one of
/// these stops. Succeeds where that one is blamed.
int test_silence(const xylem::Runtime& runtime) {
  const auto world = runtime.world();
  constexpr std::uint32_t kStops = 3;
  auto apart = world.duplicate();
  if (!apart) return fail("duplicate", apart.status().to_string());
  if (world.rank() >= 2) {
    std::vector<float> nothing(1);
    const auto never = apart->recv(std::span(nothing), 0, 1);
    // The others ask after 0.2 s.
    (void)never.wait_for(std::chrono::milliseconds(world.rank() == kStops ? 800 : 5000));
    if (world.rank() == kStops) raise(SIGSTOP);
  }
  const auto status = all_reduce(world, 100);
  const bool is_right = status.code() == Code::timed_out && status.peer() == kStops;
  return is_right ? 0 : fail("silence", status.to_string());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string mode = argv[1];
  auto runtime = xylem::Runtime::create();
  if (!runtime) return fail("start", runtime.status().to_string());
  if (mode == "fork") return test_fork(*runtime);
  if (mode == "signals") return test_signals(*runtime);
  if (mode == "silence") return test_silence(*runtime);
  if (mode == "ports") return test_ports(*runtime);
  return test_loop(*runtime);
}
