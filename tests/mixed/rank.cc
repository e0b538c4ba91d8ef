// SPDX-License-Identifier: Apache-2.0
#include "mixed/rank.h"

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
#include <filesystem>
#include <iterator>

namespace xylem::test::mixed {
namespace {

using std::chrono::duration;
using std::chrono::seconds;

/// After a fault, each call must end within this time.
constexpr seconds kPromise{6};

}  // namespace

using std::chrono::milliseconds;

std::string Rank::run() {
  for (std::uint32_t p = 0; p < setting_.programs && failure_.empty(); ++p) {
    program_ = p;
    seed_ = setting_.seed + p;
    run_program();
  }
  if (setting_.device != nullptr && failure_.empty()) failure_ = misuse();
  return failure_.empty() ? "" : "program " + std::to_string(seed_) + ": " + failure_;
}

std::string Rank::misuse() const {
  std::string what = setting_.device->misuse();
  // After a fault, a message may refer to memory that its sender has already freed.
  const bool is_late = !setting_.fault.empty() && what.ends_with("the memory is gone");
  return is_late ? std::string() : what;
}

void Rank::fail(const std::string& what) {
  if (failure_.empty()) failure_ = what;
}

void Rank::run_program() {
  if (!make_comms()) return;
  // Waits until all ranks have made their communicators. The fault may happen only after that.
  if (has_fault()) (void)world_.barrier().wait();
  auto program = make_program(seed_, setting_.calls);
  if (setting_.fault == "leave") {
    // A receive from any source can match a message of any other rank. So it does not end when one
    // rank leaves.
    for (MixedCall& call : program) {
      if (call.kind == Kind::message_any) call.kind = Kind::message;
    }
  }
  fault_at_ = has_fault() ? draw(seed_, 1) % program.size() : program.size();
  std::uint32_t most = 1 + static_cast<std::uint32_t>(draw(seed_, 2) % 64);
  if (draw(seed_, 3) % 4 == 0) most = 1;
  fault_comm_ = has_fault() ? program[fault_at_].comm : kComms;
  for (std::uint32_t at = 0; at < program.size() && failure_.empty(); ++at) {
    if (at == fault_at_ && is_victim() && !commit_fault(program[at])) return;
    const Communicator& comm = comms_[program[at].comm];
    if (!comm) continue;
    flights_.push_back(Flight::begin(program[at], comm, setting_.device, !has_fault()));
    while (flights_.size() >= most && failure_.empty()) take_one(at);
  }
  while (!flights_.empty() && failure_.empty()) take_one(0);
  if (has_fault()) {
    // Each rank stays in the job until all ranks have noticed the fault.
    for (const Communicator& comm : comms_) (void)comm.barrier().wait();
    watch();
  }
  for (std::uint32_t c = 1; c < kComms; ++c) {
    const Status ended = comms_[c].destroy();
    if (!ended && failure_.empty()) fail("destroy: " + ended.to_string());
  }
  comms_.clear();
  if (setting_.device != nullptr && !has_fault() && draw(seed_, 7) % 2 == 0) {
    setting_.device->renew();
  }
}

bool Rank::make_comms() {
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
  return setting_.device == nullptr || bind_devices();
}

/// Binds the devices of some communicators. The world stays bound in later programs, and the
/// communicators made of it then begin with `same_memory`.
bool Rank::bind_devices() {
  for (std::uint32_t c = 0; c < kComms; ++c) {
    if (!comms_[c] || draw(seed_, 8, c) % 2 == 0) continue;
    const auto bound = comms_[c].bind(setting_.device->memory());
    if (!bound) {
      fail("bind: " + bound.status().to_string());
      return false;
    }
  }
  return true;
}

void Rank::take_one(std::uint64_t chance) {
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
  ended_.back().fill();
}

void Rank::judge(const Flight& flight, const Status& outcome, double took) {
  const std::string text = "call " + std::to_string(flight.call().number) + " of kind " +
                           std::to_string(static_cast<int>(flight.call().kind)) +
                           " on communicator " + std::to_string(flight.call().comm) + ": " +
                           outcome.to_string();
  if (!has_fault()) return fail(text);
  if (took > duration<double>(kPromise).count()) {
    return fail("after " + std::to_string(took) + " s: " + text);
  }
  // UCX cannot withdraw messages, and devices of peers use the buffers of calls on a mesh. held_
  // keeps these buffers alive.
  if (outcome.holds_buffers() && setting_.withdraws && !flight.runs_on_devices())
    return fail("buffers are not given back: " + text);
  // A rank waits until its calls with the stopped rank time out, so it may be late in calls on
  // other communicators.
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
  if (fault != "mismatch" && outcome.peer() != setting_.victim) fail("blames another: " + text);
  if (!outcome.peer()) fail("blames nobody: " + text);
}

void Rank::judge_cut(const Status& outcome, const std::string& text) {
  const bool is_it = outcome.code() == Code::peer_lost || outcome.code() == Code::link_lost;
  if (!is_it || !outcome.peer()) fail(text);
}

bool Rank::concerns(std::uint32_t comm) const {
  if (setting_.fault == "pause") return false;
  if (setting_.fault == "abort") return comm == aborted();
  if (setting_.fault == "mismatch") return comm == fault_comm_;
  for (std::uint32_t rank = 0; rank < comms_[comm].size(); ++rank) {
    if (comms_[comm].world_rank(rank) == setting_.victim) return true;
  }
  return false;
}

bool Rank::commit_fault(const MixedCall& call) {
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
    // In these calls, one more element makes no difference, or not on every rank. A message may be
    // shorter than its receive.
    const bool may_be_the_same = call.kind == Kind::barrier || call.kind == Kind::all_gather_v ||
                                 call.kind == Kind::reduce_scatter_v ||
                                 call.kind == Kind::all_to_all_v || call.kind == Kind::message ||
                                 call.kind == Kind::message_any;
    if (may_be_the_same) other.kind = Kind::all_reduce;
    if (const Communicator& comm = comms_[call.comm]) {
      flights_.push_back(Flight::begin(other, comm, setting_.device));
    }
  }
  if (fault != "leave") return true;
  while (!flights_.empty() && failure_.empty()) take_one(0);
  comms_.clear();
  world_ = alone_ = {};
  if (Status left = runtime_.shutdown(); !left) fail("shutdown: " + left.to_string());
  return false;
}

std::set<int> Rank::connected_sockets() {
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

void Rank::cut_a_connection() const {
  std::vector<int> payload;
  std::ranges::set_difference(connected_sockets(), of_the_start_, std::back_inserter(payload));
  if (payload.empty()) return;
  (void)::shutdown(payload[draw(seed_, 6) % payload.size()], SHUT_RDWR);
}

void Rank::pause_for(milliseconds time) {
  const pid_t self = ::getpid();
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return;
  if (::fork() == 0) {
    ::close(ends[1]);
    ::poll(nullptr, 0, static_cast<int>(time.count()));
    // Sends the signal repeatedly until the process runs again, since the first signal may arrive
    // before the process has stopped.
    pollfd gone_on{ends[0], 0, 0};
    do {
      ::kill(self, SIGCONT);
    } while (::poll(&gone_on, 1, 10) == 0);
    ::_exit(0);
  }
  ::close(ends[0]);
  ::raise(SIGSTOP);
  ::close(ends[1]);
}

void Rank::watch() {
  if (is_victim()) return;
  if (setting_.fault == "stop") {
    std::printf("survived\n");
    std::fflush(stdout);
    // A wait for a message that is never sent makes this rank's transports progress.
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
    if (!flight.is_filled()) {
      fail("call " + std::to_string(flight.call().number) +
           ": its buffers were written after its end");
    }
  }
}

}  // namespace xylem::test::mixed
