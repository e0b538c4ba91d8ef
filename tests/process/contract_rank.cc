// SPDX-License-Identifier: Apache-2.0
//
// A rank of contract_test. It checks the promises of docs/threading.md and docs/errors.md about
// fork, signals and stopped processes.
//
//   contract_rank fork | signals | loop | ports | silence | two_silent | more_time
//   contract_rank give_up send|receive abort|time_out held|free
//   contract_rank ending MODE
#include "process/contract_endings.h"
#include "xylem/xylem.h"

#include <sched.h>
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
#include <fstream>
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

/// Starts a job that consists of this process.
xylem::Result<xylem::Runtime> start_alone() {
  xylem::Options options;
  options.rank = 0;
  options.size = 1;
  return xylem::Runtime::create(options);
}

/// The forked child process. Checks that every call is refused. The end of the child must not
/// affect the ranks. Returns the child's exit status.
int child(xylem::Runtime& runtime, const xylem::Work& pending) {
  // A loop over test() must end, and status() must return the reason.
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
  if (const auto other = start_alone(); other.code() != Code::invalid_argument) return 11;
  if (xylem::allocate(8).code() != Code::invalid_argument) return 12;
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

/// Rank 0 shuts down its runtime before it forks. The other ranks fork while their runtimes are in
/// use. Each child drops the last handles of the inherited runtime. After that, the child of rank 0
/// may use Xylem, and the other children may not.
int test_fork_after_shutdown(xylem::Runtime& runtime) {
  auto world = runtime.world();
  const bool leaves_first = world.rank() == 0;
  if (leaves_first && !runtime.shutdown()) return fail("shutdown", "0");
  const pid_t pid = fork();
  if (pid == 0) {
    world = {};
    const xylem::Runtime goes = std::move(runtime);
    auto own = start_alone();
    if (own.is_ok() != leaves_first) _exit(1);
    _exit(!own || (xylem::allocate(8) && all_reduce(own->world(), 8) && own->shutdown()) ? 0 : 2);
  }
  return ended_well(pid);
}

int test_fork(xylem::Runtime& runtime) {
  const auto world = runtime.world();
  enum class End { at_once, unwinds, exits };
  for (const End end : {End::at_once, End::unwinds, End::exits}) {
    // Each message is sent only after all ranks have forked: the all_reduce below separates forks
    // and sends.
    std::vector<float> from_before(8), to_next(8, 1.0F);
    const auto n = world.size(), me = world.rank();
    const auto pending = world.recv(std::span(from_before), (me + n - 1) % n, 1);
    const pid_t pid = fork();
    if (pid == 0) {
      const int result = child(runtime, pending);
      if (end == End::exits) std::exit(result);
      if (end == End::unwinds) {
        // Destroys the runtime in the child, as the unwinding in a data loader's worker does.
        const xylem::Runtime goes = std::move(runtime);
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

/// The program has its own signal handler, and signals interrupt it a thousand times a second.
int test_signals(xylem::Runtime& runtime) {
  struct sigaction action {};
  action.sa_handler = [](int) { ticks = ticks + 1; };
  sigaction(SIGALRM, &action, nullptr);
  const itimerval every{{0, 1000}, {0, 1000}};
  setitimer(ITIMER_REAL, &every, nullptr);
  // After each call, the ranks agree on whether to stop, so all ranks stop after the same call.
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

/// Makes calls until a rank is lost, or until the parent process kills this rank. Prints one line
/// per hundred calls.
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

/// Counts the sockets on which this process listens.
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

/// Ranks 0 and 1 of four make a call. In the roll call, ranks 2 and 3 answer that they have not
/// made it. Then rank 3 stops. A rank passes if its call blames rank 3.
int test_silence(const xylem::Runtime& runtime) {
  const auto world = runtime.world();
  constexpr std::uint32_t kStops = 3;
  auto apart = world.duplicate();
  if (!apart) return fail("duplicate", apart.status().to_string());
  if (world.rank() >= 2) {
    std::vector<float> nothing(1);
    const auto never = apart->recv(std::span(nothing), 0, 1);
    // The ranks in the call start the roll call after 0.2 s.
    (void)never.wait_for(std::chrono::milliseconds(world.rank() == kStops ? 800 : 5000));
    if (world.rank() == kStops) raise(SIGSTOP);
  }
  const auto status = all_reduce(world, 100);
  const bool is_right = status.code() == Code::timed_out && status.peer() == kStops;
  return is_right ? 0 : fail("silence", status.to_string());
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// The last two of four ranks stop. A rank passes if its error names both of them and blames
/// neither.
int test_two_silent(const xylem::Runtime& runtime) {
  const auto world = runtime.world();
  auto status = world.barrier().wait();
  if (world.rank() >= 2) raise(SIGSTOP);
  const auto begin = std::chrono::steady_clock::now();
  if (status) status = all_reduce(world, 100);
  // The time limit is 2 s. The roll call begins 0.3 s earlier, and ranks have 1.5 s to answer.
  const double took = seconds_since(begin);
  const bool is_right =
      status.code() == Code::timed_out && !status.peer() && took > 3.0 && took < 4.7 &&
      status.message().find("ranks 2, 3 gave no answer") != std::string_view::npos;
  return is_right ? 0 : fail("silence", std::to_string(took) + " s: " + status.to_string());
}

bool is_stopped(std::int32_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string stat;
  std::getline(file, stat);
  const auto name_ends = stat.rfind(')');
  return name_ends != std::string::npos && stat.compare(name_ends, 3, ") T") == 0;
}

/// The process ids of all ranks; empty if the all_gather fails.
std::vector<std::int32_t> processes_of(const xylem::Communicator& comm) {
  const std::int32_t mine = getpid();
  std::vector<std::int32_t> all(comm.size());
  const auto told = comm.all_gather(std::span<const std::int32_t>(&mine, 1), std::span(all)).wait();
  return told ? all : std::vector<std::int32_t>();
}

/// Rank 0 makes a call. After its roll call has begun, it extends the call's time limit. Rank 2
/// answers, and then stops. Rank 0 passes if its call blames rank 2: for this it must hold a second
/// roll call at the new limit.
int test_more_time(const xylem::Runtime& runtime) {
  using std::chrono::milliseconds;
  const auto world = runtime.world();
  auto apart = world.duplicate();
  if (!apart) return fail("duplicate", apart.status().to_string());
  const auto all = processes_of(world);
  if (all.size() != 3) return fail("meeting", "3 processes");
  std::vector<float> word(1);
  if (world.rank() != 0) {
    raise(SIGSTOP);
    if (!apart->send(std::span<const float>(word), 0).wait()) return fail("send", "to 0");
    return apart->recv(std::span(word), 0).wait() ? 0 : fail("recv", "from 0");
  }
  while (!is_stopped(all[1]) || !is_stopped(all[2])) sched_yield();
  std::vector<float> in(100), out(100);
  const auto call = world.all_reduce(std::span<const float>(in), std::span(out));
  // The roll call begins after 0.3 s. Ranks 1 and 2 are stopped, so the roll call does not end
  // before 1.8 s.
  call.set_timeout(milliseconds(600));
  (void)call.wait_for(milliseconds(700));
  call.set_timeout(milliseconds(4500));
  for (const int rank : {1, 2}) kill(all[static_cast<std::size_t>(rank)], SIGCONT);
  for (const std::uint32_t rank : {1U, 2U}) {
    if (!apart->recv(std::span(word), rank).wait()) return fail("recv", "of one that goes on");
  }
  (void)call.wait_for(milliseconds(500));  // In this time, rank 2's answer arrives.
  kill(all[2], SIGSTOP);
  const auto status = call.wait();
  if (!apart->send(std::span<const float>(word), 1).wait()) return fail("send", "to 1");
  const bool is_right = status.code() == Code::timed_out && status.peer() == 2U;
  return is_right ? 0 : fail("more time", status.to_string());
}

/// How rank 0 ends a message, and whether the transport is expected to hold the buffer.
struct GivesUp {
  bool sends, aborts, is_held;
};

/// Rank 0 exchanges a large message with rank 1, stops rank 1 while the message is under way, and
/// then aborts the message or lets it time out.
int test_giving_up(const xylem::Runtime& runtime, const GivesUp& how) {
  const auto world = runtime.world();
  auto apart = world.duplicate();
  if (!apart) return fail("duplicate", apart.status().to_string());
  const auto all = processes_of(world);
  if (all.size() != 2) return fail("meeting", "2 processes");
  const bool is_first = world.rank() == 0, sends = is_first == how.sends;
  std::vector<float> large(32 << 20, sends ? 1.0F : 0.0F);
  const auto work = sends ? apart->send(std::span<const float>(large), is_first ? 1 : 0)
                          : apart->recv(std::span(large), is_first ? 1 : 0);
  // Waits until some of the data has arrived, so the message has matched.
  const volatile float& first = large.front();
  while (!sends && first == 0.0F && !work.test()) {
  }
  if (!sends) kill(all[1], SIGSTOP);
  while (!is_stopped(all[1])) (void)work.wait_for(std::chrono::milliseconds(1));
  if (work.ended()) return fail("the message", "has gone");

  const auto begin = std::chrono::steady_clock::now();
  if (how.aborts) {
    if (const auto aborted = apart->abort("enough"); !aborted)
      return fail("abort", aborted.to_string());
  } else {
    work.set_timeout(std::chrono::milliseconds(500));
  }
  const auto status = work.wait();
  // Timing out takes up to 0.8 s. Withdrawing a held buffer takes up to 1.7 s. The rest is
  // tolerance for slow machines.
  const double took = seconds_since(begin), least = how.is_held ? 1.5 : 0.0;
  const double most = least + (how.aborts ? 1.0 : 1.8) + (how.is_held ? 1.0 : 0.0);
  const bool says_so = status.message().find(
                           "1 messages could not be withdrawn: do not free or "
                           "reuse the buffers") != std::string_view::npos;
  const bool is_right = status.code() == (how.aborts ? Code::cancelled : Code::timed_out) &&
                        status.holds_buffers() == how.is_held && says_so == how.is_held &&
                        took > least && took < most;
  const std::string detail = std::to_string(took) + " s: " + status.to_string();
  std::printf("given up after %s\n", detail.c_str());
  std::fflush(stdout);
  return is_right ? 0 : fail("giving up", detail);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const std::string mode = words.empty() ? "" : words[0];
  if (words.size() != (mode == "give_up" ? 4 : mode == "ending" ? 2 : 1)) return 2;
  if (mode == "ending") return xylem::test::test_ending(words[1]);
  auto runtime = xylem::Runtime::create();
  if (!runtime) return fail("start", runtime.status().to_string());
  if (mode == "fork") return test_fork(*runtime);
  if (mode == "signals") return test_signals(*runtime);
  if (mode == "silence") return test_silence(*runtime);
  if (mode == "ports") return test_ports(*runtime);
  if (mode == "two_silent") return test_two_silent(*runtime);
  if (mode == "more_time") return test_more_time(*runtime);
  if (mode == "give_up") {
    return test_giving_up(*runtime, {.sends = words[1] == "send",
                                     .aborts = words[2] == "abort",
                                     .is_held = words[3] == "held"});
  }
  return test_loop(*runtime);
}
