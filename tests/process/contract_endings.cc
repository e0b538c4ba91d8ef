// SPDX-License-Identifier: Apache-2.0
//
// Ranks of contract_test whose program ends without a shutdown of the runtime, or uses the runtime
// while the program ends.
#include "process/contract_endings.h"

#include "xylem/xylem.h"
#include "xylem/xylem_c.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace xylem::test {
namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t kEnds = 0, kReceives = 1, kGoesOn = 2;          // The ranks.
constexpr std::uint32_t kSmall = 1, kLarge = 2, kLast = 3, kReady = 4;  // Tags.
constexpr std::size_t kMany = 1 << 20;
constexpr std::string_view kFromAHandler = "from_a_handler";

/// The state of a rank. It is never destroyed, so that it can be used while the process ends.
struct Ending {
  Runtime runtime;
  Communicator world;
  std::vector<float> buffer;
  void (*in_destructor)(Ending&) = nullptr;
};
Ending* ending = nullptr;

[[gnu::destructor]] void at_the_end() {
  if (ending != nullptr && ending->in_destructor != nullptr) ending->in_destructor(*ending);
}

void check(bool is_right, const char* what) {
  if (is_right) return;
  std::printf("wrong: %s\n", what);
  std::fflush(stdout);
  _exit(9);
}

void check(const Status& status, const char* what) {
  if (!status) std::printf("%s\n", status.to_string().c_str());
  check(status.is_ok(), what);
}

Status all_reduce(const Communicator& comm, std::size_t count) {
  std::vector<float> in(count, 1.0F), out(count);
  const Status status = comm.all_reduce(std::span<const float>(in), std::span(out)).wait();
  check(!status || out.back() == static_cast<float>(comm.size()), "the sum");
  return status;
}

/// Uses everything that must still work while the process ends: plans, messages, communicators,
/// errors, logs and memory.
void use_everything(Ending& end) {
  const auto n = end.world.size(), me = end.world.rank();
  for (const std::size_t count : {1, 5'000, 300'000}) check(all_reduce(end.world, count), "sum");
  check(end.world.plan_info("all_gather", 100, DataType::float32).status(), "plan_info");
  std::vector<float> in(kMany, static_cast<float>(me)), out(kMany);
  const Work sent = end.world.send(std::span<const float>(in), (me + 1) % n);
  check(wait_all(end.world.recv(std::span(out), (me + n - 1) % n), sent), "messages");
  check(out.back() == static_cast<float>((me + n - 1) % n), "the message");
  auto half = end.world.split(static_cast<std::int32_t>(me % 2), 0);
  check(half.status(), "split");
  check(half->barrier().wait(), "barrier");
  check(half->destroy(), "destroy");
  check(allocate(1000).status(), "allocate");
  // The thread already had a last error before the program began to end.
  for (int i = 0; i < 2; ++i) {
    check(xylem_barrier(nullptr, nullptr) == XYLEM_INVALID_ARGUMENT, "xylem_barrier");
    check(std::string_view(xylem_last_error()) == "communicator is null", "xylem_last_error");
  }
  check(end.world.plan_info("all_reduse", 1, DataType::float32).code() == Code::invalid_argument,
        "an error");
  check(end.runtime.shutdown(), "shutdown");
  std::printf("used everything\n");
  std::fflush(stdout);
}

int end_with_calls(bool is_in_destructor) {
  check(xylem_barrier(nullptr, nullptr) == XYLEM_INVALID_ARGUMENT, "xylem_barrier");
  check(all_reduce(ending->world, 1), "sum");
  if (is_in_destructor) {
    ending->in_destructor = use_everything;
  } else {
    check(std::atexit([] { use_everything(*ending); }) == 0, "atexit");
  }
  return 0;
}

void end_as(const std::string& how) {
  if (how == "exit") std::exit(0);
  if (how.starts_with(kFromAHandler)) {
    if (how != kFromAHandler) {
      check(std::atexit([] {
              check(ending->runtime.shutdown().code() == Code::busy, "shutdown within a call");
            }) == 0,
            "atexit");
    }
    // The signal handler interrupts a wait, during which the thread drives the transports.
    signal(SIGALRM, [](int) { std::exit(0); });
    const itimerval soon{{0, 0}, {0, 100'000}};
    setitimer(ITIMER_REAL, &soon, nullptr);
    (void)ending->world.recv(std::span(ending->buffer), kGoesOn, kLast).wait();
  }
  if (how == "status") std::exit(1);
  if (how == "exception") throw std::runtime_error("nobody catches this");
  if (how == "signal") raise(SIGTERM);
  if (how == "_exit") _exit(0);
}

/// Waits until a process has ended. Fails after 20 s.
void wait_for_end_of(std::int32_t process) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  pollfd ended{fd, POLLIN, 0};
  check(fd < 0 || poll(&ended, 1, 20'000) == 1, "the end of rank 0");
}

/// Receives from rank 0, which has ended. Checks that the receive fails within 3 s and states the
/// reason.
void receive_nothing(const char* why) {
  const auto begin = std::chrono::steady_clock::now();
  const Status status = ending->world.recv(std::span(ending->buffer).first(1), kEnds, kLast).wait();
  std::printf("%s\n", status.to_string().c_str());
  check(status.code() == Code::peer_lost && status.peer() == kEnds, "the error");
  check(status.message().find(why) != std::string_view::npos, "the reason");
  check(std::chrono::steady_clock::now() - begin < milliseconds(3000), "the time");
}

/// Rank 0 has ended normally. Checks that its last message arrives, and that the others can
/// exchange messages without rank 0. Then checks that a call with rank 0 fails.
void go_on_after_a_good_end(std::uint32_t me) {
  const auto& world = ending->world;
  float& word = ending->buffer.front();
  if (me == kReceives) {
    check(world.recv(std::span(&word, 1), kEnds, kSmall).wait(), "the message of rank 0");
    check(word == 7.0F, "the small message");
    word = 8.0F;
    check(world.send(std::span<const float>(&word, 1), kGoesOn, kSmall).wait(), "send");
  } else {
    check(world.recv(std::span(&word, 1), kReceives, kSmall).wait(), "recv");
    check(word == 8.0F, "the message of rank 1");
  }
  const Status status = all_reduce(world, 1);
  std::printf("%s\n", status.to_string().c_str());
  check(status.code() == Code::peer_lost && status.peer() == kEnds, "a call with rank 0");
}

int end_while_others_go_on(const std::string& how, bool is_good) {
  const auto& world = ending->world;
  const auto me = world.rank();
  const std::int32_t process = getpid();
  std::vector<std::int32_t> processes(world.size());
  check(world.all_gather(std::span<const std::int32_t>(&process, 1), std::span(processes)).wait(),
        "all_gather");
  auto apart = world.duplicate();
  check(apart.status(), "duplicate");
  ending->buffer.assign(kMany, 7.0F);
  const std::span<const float> sends(ending->buffer);
  if (me != kEnds) check(world.send(sends.first(1), kEnds, kReady).wait(), "ready");
  if (me == kEnds) {
    for (const std::uint32_t other : {kReceives, kGoesOn})
      check(world.recv(std::span(ending->buffer).first(1), other, kReady).wait(), "all are ready");
    check(world.send(sends.first(1), kReceives, kSmall).wait(), "send");
    Work large;
    if (is_good) large = world.send(sends, kReceives, kLarge);
    if (how == "shutdown") {
      check(large.wait(), "the large message");
      check(ending->runtime.shutdown(), "shutdown");
      return 0;
    }
    // Rank 0 waits neither for the large message, nor for a receive whose message is never sent.
    (void)world.recv(std::span<float>(), kGoesOn, kLast);
    end_as(how);
    return 0;
  }
  std::vector<float> large(kMany);
  if (is_good && me == kReceives) {
    check(world.recv(std::span(large), kEnds, kLarge).wait(), "the large message");
    check(large.front() == 7.0F && large.back() == 7.0F, "its contents");
  }
  wait_for_end_of(processes[kEnds]);
  if (!is_good) {
    // After exit() in a signal handler, rank 0 may leave normally or be lost. So only "rank 0" is
    // expected.
    receive_nothing(how.starts_with(kFromAHandler) ? "rank 0" : "was lost");
  } else {
    go_on_after_a_good_end(me);
    // A send to a rank that has left fails, although a small send needs no matching receive.
    const Status sent = apart->send(sends.first(1), kEnds, kSmall).wait();
    std::printf("%s\n", sent.to_string().c_str());
    check(sent.code() == Code::peer_lost && sent.peer() == kEnds, "a send to rank 0");
  }
  (void)ending->runtime.shutdown();
  return 0;
}

}  // namespace

int test_ending(const std::string& mode) {
  auto runtime = Runtime::create();
  check(runtime.status(), "start");
  ending = new Ending{*std::move(runtime), {}, std::vector<float>(1), nullptr};
  ending->world = ending->runtime.world();
  if (mode == "calls_in_destructor") return end_with_calls(true);
  if (mode == "calls_at_exit") return end_with_calls(false);
  const bool is_good = mode == "return" || mode == "exit" || mode == "shutdown";
  return end_while_others_go_on(mode, is_good);
}

}  // namespace xylem::test
