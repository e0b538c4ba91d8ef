// SPDX-License-Identifier: Apache-2.0
//
// A rank of the mixed-program test: runs programs drawn from seeds, and checks every element.
//
//   mixed_rank SEED PROGRAMS CALLS [FAULT VICTIM DIRECTORY]
//
// FAULT happens at the rank VICTIM, at a random call of the last program:
//
//   kill      it kills itself
//   stop      it stops; the parent lets it go on when the others have told of their end
//   pause     it stops, and goes on after a moment
//   leave     it shuts down in good order
//   abort     it aborts one communicator; the others go on
//   mismatch  it calls something else
//   cut       one of its connections for payload is cut (tcp alone)
//
// The others go on with the whole program. Their calls end well, and right, or, on communicators
// that the fault concerns, with its error, soon. The buffers of calls that ended with an error are
// filled with a pattern, and looked at again when the victim is through. A rank prints "worst
// SECONDS" and ends with 0 if all was as it must be.
#include "mixed/flight.h"
#include "xylem/base/clock.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace xylem::test::mixed {
namespace {

using std::chrono::duration;
using std::chrono::milliseconds;
using std::chrono::seconds;

struct Setting {
  std::uint64_t seed = 0;
  std::uint32_t programs = 1, calls = 0;
  std::string fault;
  std::uint32_t victim = 0;
  std::string directory;
};

/// No call may take longer than this to end once a fault has happened.
constexpr seconds kPromise{6};

class Rank {
 public:
  Rank(Runtime& runtime, Setting setting)
      : runtime_(runtime),
        setting_(std::move(setting)),
        world_(runtime.world()),
        of_the_start_(connected_sockets()) {}

  int run() {
    for (std::uint32_t p = 0; p < setting_.programs && failure_.empty(); ++p) {
      program_ = p;
      seed_ = setting_.seed + p;
      run_program();
    }
    if (!failure_.empty()) {
      std::printf("rank %u, program %llu: %s\n", runtime_.rank(),
                  static_cast<unsigned long long>(seed_), failure_.c_str());
      return 1;
    }
    std::printf("worst %.3f s, %llu elements\n", worst_, static_cast<unsigned long long>(checked_));
    return 0;
  }

 private:
  bool is_victim() const { return runtime_.rank() == setting_.victim; }
  bool is_last_program() const { return program_ + 1 == setting_.programs; }
  bool has_fault() const { return !setting_.fault.empty() && is_last_program(); }

  void fail(const std::string& what) {
    if (failure_.empty()) failure_ = what;
  }

  void run_program() {
    if (!make_comms()) return;
    // The fault comes when all have made them.
    if (has_fault()) (void)world_.barrier().wait();
    const auto program = make_program(seed_, setting_.calls);
    fault_at_ = has_fault() ? draw(seed_, 1) % program.size() : program.size();
    std::uint32_t most = 1 + static_cast<std::uint32_t>(draw(seed_, 2) % 64);
    if (draw(seed_, 3) % 4 == 0) most = 1;
    fault_comm_ = has_fault() ? program[fault_at_].comm : kComms;
    for (std::uint32_t at = 0; at < program.size() && failure_.empty(); ++at) {
      if (at == fault_at_ && is_victim() && !commit_fault(program[at])) return;
      const Communicator& comm = comms_[program[at].comm];
      if (!comm) continue;
      flights_.push_back(Flight::begin(program[at], comm));
      while (flights_.size() >= most && failure_.empty()) take_one(at);
    }
    while (!flights_.empty() && failure_.empty()) take_one(0);
    if (has_fault()) {
      // So nobody leaves before others have found out about the fault.
      for (const Communicator& comm : comms_) (void)comm.barrier().wait();
      watch();
    }
    for (std::uint32_t c = 1; c < kComms; ++c) {
      const Status ended = comms_[c].destroy();
      if (!ended && failure_.empty()) fail("destroy: " + ended.to_string());
    }
    comms_.clear();
  }

  bool make_comms() {
    comms_ = {world_};
    if (auto made = world_.split(static_cast<std::int32_t>(runtime_.rank()), 0)) {
      alone_ = std::move(*made);
    }
    for (std::uint32_t c = 1; c < kComms; ++c) {
      auto made = c == 1 ? world_.duplicate()
                         : world_.split(color_of(seed_, c, runtime_.rank()),
                                        key_of(seed_, c, runtime_.rank()));
      if (!made) {
        fail("split: " + made.status().to_string());
        return false;
      }
      comms_.push_back(std::move(*made));
    }
    return true;
  }

  /// Waits for one of the calls under way: the oldest, mostly.
  void take_one(std::uint64_t chance) {
    const std::size_t which =
        draw(seed_, 40, chance) % 4 == 0 ? draw(seed_, 41, chance) % flights_.size() : 0;
    Flight flight = std::move(flights_[which]);
    flights_.erase(flights_.begin() + static_cast<std::ptrdiff_t>(which));
    const auto begin = Clock::now();
    const Status outcome = flight.wait();
    const double took = duration<double>(Clock::now() - begin).count();
    if (outcome) {
      if (std::string wrong = flight.check(); !wrong.empty()) return fail(wrong);
      ++checked_;
      return;
    }
    worst_ = std::max(worst_, took);
    judge(flight, outcome, took);
    (outcome.holds_buffers() ? held_ : ended_).push_back(std::move(flight));
    if (outcome.holds_buffers()) return;
    ended_.back().input.fill();
    ended_.back().output.fill();
  }

  /// Whether an error is the one that the fault must bring.
  void judge(const Flight& flight, const Status& outcome, double took) {
    const std::string text = "call " + std::to_string(flight.call().number) + " of kind " +
                             std::to_string(static_cast<int>(flight.call().kind)) +
                             " on communicator " + std::to_string(flight.call().comm) + ": " +
                             outcome.to_string();
    if (!has_fault()) return fail(text);
    if (took > duration<double>(kPromise).count()) {
      return fail("after " + std::to_string(took) + " s: " + text);
    }
    // Of a fabric that cannot withdraw messages; the buffers live on, in held_.
    if (outcome.holds_buffers() && withdraws()) return fail("buffers are not given back: " + text);
    // Who waits for the stopped rank is late for others.
    const bool may_be_late = setting_.fault == "stop" && outcome.code() == Code::timed_out;
    if (!concerns(flight.call().comm)) return may_be_late ? void() : fail("not concerned: " + text);
    if (is_victim()) return;
    const std::string& fault = setting_.fault;
    if (fault == "cut") return judge_cut(outcome, text);
    const Code wanted = fault == "abort"                      ? Code::cancelled
                        : fault == "kill" || fault == "leave" ? Code::peer_lost
                        : fault == "mismatch"                 ? Code::mismatch
                                                              : Code::timed_out;
    if (outcome.code() != wanted) return fail(text);
    if (fault == "abort") return;
    if (fault != "mismatch" && outcome.peer() != setting_.victim) fail("blames another: " + text);
    if (!outcome.peer()) fail("blames nobody: " + text);
  }

  /// Who of the two ends is to blame nobody can know.
  void judge_cut(const Status& outcome, const std::string& text) {
    const bool is_it = outcome.code() == Code::peer_lost || outcome.code() == Code::link_lost;
    if (!is_it || !outcome.peer()) fail(text);
  }

  /// Whether the transport lets go of buffers though a peer stands still.
  static bool withdraws() {
    const char* transport = std::getenv("XYLEM_TRANSPORT");
    return transport == nullptr || std::string_view(transport) != "ucx-tcp";
  }

  /// Whether the fault may end calls on a communicator.
  bool concerns(std::uint32_t comm) const {
    if (setting_.fault == "pause") return false;
    if (setting_.fault == "abort") return comm == aborted();
    if (setting_.fault == "mismatch") return comm == fault_comm_;
    for (std::uint32_t rank = 0; rank < comms_[comm].size(); ++rank) {
      if (comms_[comm].world_rank(rank) == setting_.victim) return true;
    }
    return false;
  }

  std::uint32_t aborted() const { return 1 + static_cast<std::uint32_t>(draw(seed_, 4) % 4); }

  /// At the victim. Whether it goes on with the program.
  bool commit_fault(const MixedCall& call) {
    const std::string& fault = setting_.fault;
    if (fault == "kill") ::kill(::getpid(), SIGKILL);
    if (fault == "stop") ::raise(SIGSTOP);
    if (fault == "pause") pause_for(milliseconds(draw(seed_, 5) % 400));
    if (fault == "abort" && comms_[aborted()]) {
      (void)comms_[aborted()].abort("the test says so");
    }
    if (fault == "cut") cut_a_connection();
    if (fault == "mismatch") {
      MixedCall other = call;
      other.count = call.count + 1;
      other.kind = call.kind == Kind::barrier ? Kind::all_reduce : call.kind;
      if (const Communicator& comm = comms_[call.comm]) {
        flights_.push_back(Flight::begin(other, comm));
      }
    }
    if (fault != "leave") return true;
    while (!flights_.empty() && failure_.empty()) take_one(0);
    comms_.clear();
    world_ = alone_ = {};
    if (Status left = runtime_.shutdown(); !left) fail("shutdown: " + left.to_string());
    return false;
  }

  /// TCP connections of this process.
  static std::set<int> connected_sockets() {
    std::set<int> sockets;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      const auto fd = static_cast<int>(std::strtol(entry.path().filename().c_str(), nullptr, 10));
      int protocol = 0;
      socklen_t size = sizeof protocol;
      sockaddr_storage peer{};
      socklen_t peer_size = sizeof peer;
      if (::getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 &&
          protocol == IPPROTO_TCP &&
          ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0) {
        sockets.insert(fd);
      }
    }
    return sockets;
  }

  /// Not one of the control plane's, which are there from the start on.
  void cut_a_connection() const {
    std::vector<int> payload;
    std::ranges::set_difference(connected_sockets(), of_the_start_, std::back_inserter(payload));
    if (payload.empty()) return;
    (void)::shutdown(payload[draw(seed_, 6) % payload.size()], SHUT_RDWR);
  }

  /// Stops this process; another one lets it go on after a while.
  static void pause_for(milliseconds time) {
    const pid_t self = ::getpid();
    if (::fork() == 0) {
      ::poll(nullptr, 0, static_cast<int>(time.count()));
      ::kill(self, SIGCONT);
      ::_exit(0);
    }
    ::raise(SIGSTOP);
  }

  std::string file(const std::string& what) const { return setting_.directory + "/" + what; }

  /// Nothing may come into the buffers of calls that have ended: not when the victim goes on, and
  /// not after it has ended.
  void watch() {
    if (is_victim()) return;
    std::printf("survived\n");
    std::fflush(stdout);
    if (setting_.fault == "stop") {
      // A message that never comes keeps this rank's transports going.
      std::byte nothing{};
      const Work never = alone_.recv(Buffer(&nothing, 1, DataType::uint8), 0);
      const Deadline deadline = Deadline::after(seconds(30));
      while (::access(file("victim-is-through").c_str(), F_OK) != 0 && !deadline.passed()) {
        (void)never.wait_for(milliseconds(5));
      }
      (void)never.wait_for(milliseconds(20));
      (void)alone_.abort("the watch is over");
      (void)never.wait();
    }
    for (const Flight& flight : ended_) {
      if (!flight.input.is_filled() || !flight.output.is_filled()) {
        fail("call " + std::to_string(flight.call().number) +
             ": its buffers were written after its end");
      }
    }
  }

  Runtime& runtime_;
  const Setting setting_;
  Communicator world_, alone_;
  std::vector<Communicator> comms_;
  std::deque<Flight> flights_;
  std::vector<Flight> ended_, held_;
  std::string failure_;
  std::uint32_t program_ = 0;
  std::uint64_t seed_ = 0, fault_at_ = 0, checked_ = 0;
  double worst_ = 0;
  std::uint32_t fault_comm_ = kComms;
  const std::set<int> of_the_start_;
};

int run(int argc, char** argv) {
  if (argc != 4 && argc != 7) {
    std::fputs("usage: mixed_rank SEED PROGRAMS CALLS [FAULT VICTIM DIRECTORY]\n", stderr);
    return 2;
  }
  Setting setting{std::strtoull(argv[1], nullptr, 10),
                  static_cast<std::uint32_t>(std::strtoul(argv[2], nullptr, 10)),
                  static_cast<std::uint32_t>(std::strtoul(argv[3], nullptr, 10)),
                  {},
                  0,
                  {}};
  if (argc == 7) {
    setting.fault = argv[4];
    setting.victim = static_cast<std::uint32_t>(std::strtoul(argv[5], nullptr, 10));
    setting.directory = argv[6];
  }
  auto runtime = Runtime::create();
  if (!runtime) {
    std::printf("%s\n", runtime.status().to_string().c_str());
    return 1;
  }
  const bool is_victim = runtime->rank() == setting.victim;
  const std::string through = setting.directory + "/victim-is-through";
  const int result = Rank(*runtime, setting).run();
  if (is_victim && setting.fault == "stop") {
    // What it may have sent since it goes on has left it by now.
    (void)runtime->shutdown();
    const int fd = ::open(through.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0) ::close(fd);
  }
  return result;
}

}  // namespace
}  // namespace xylem::test::mixed

int main(int argc, char** argv) { return xylem::test::mixed::run(argc, argv); }
