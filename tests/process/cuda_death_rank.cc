// SPDX-License-Identifier: Apache-2.0
//
// A rank whose peer is killed while streams wait for a call. The ranks make calls on device memory
// over the stand-in for the CUDA driver, in the order of a stream. At a given phase of a call, the
// victim kills itself. The survivors check that their streams continue in time, that the Work names
// the victim, that no later command uses the victim's memory, and that they can make further calls
// without the victim.
//
//   cuda_death_rank OP VICTIM PHASE COUNT
//
// OP is a call, or mesh_ followed by a collective. With mesh_, each rank has its own device, and
// the devices form a mesh. PHASE is the moment at which the victim dies: 0 before the call, 1 right
// after submitting it, and n after n - 1 turns of progress. COUNT is the number of words of a rank.
#include "process/cuda_bench.h"
#include "xylem/base/clock.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

namespace xylem::test {
namespace {

/// Streams continue within this time after the death, in seconds (docs/errors.md).
constexpr double kPromise = 2;
constexpr std::uint32_t kMostRanks = 3;

/// The Works of one call. Only send_recv has a second Work, for its receive.
struct Pending {
  Work work;
  Work receive{};

  bool test() const { return work.test() && receive.test(); }
  Status wait() const { return wait_all(work, receive); }
};

class Survivor {
 public:
  Survivor(const Runtime& runtime, const std::string& op, std::uint32_t victim, std::uint64_t count)
      : world_(runtime.world()),
        rank_(runtime.rank()),
        is_mesh_(op.starts_with("mesh_")),
        op_(is_mesh_ ? op.substr(5) : op),
        victim_(victim),
        count_(count),
        bench_(static_cast<int>(rank_ % (is_mesh_ ? kMostRanks : 2)), world_.size() * count) {}

  /// Kills the victim, and checks the survivors. Returns what is wrong, or an empty string.
  std::string run(int phase) {
    auto rest = world_.split(rank_ == victim_ ? -1 : 0, static_cast<std::int32_t>(rank_));
    if (!rest) return "split: " + rest.status().to_string();
    if (Status started = start(); !started) return "start: " + started.to_string();
    if (rank_ == victim_) die(phase);
    if (std::string wrong = lose_victim(); !wrong.empty()) return wrong;
    StandIn::get().forbid_opened(pids_[victim_]);
    return go_on(*rest);
  }

 private:
  /// Makes all ranks open each other's memory, and exchanges their process ids.
  Status start() {
    const std::int32_t own = ::getpid();
    if (is_mesh_) {
      XYLEM_TRY(const Binding binding, world_.bind(bench_.kind()));
      if (binding != Binding::mesh) return failure(Code::internal, "the devices form no mesh");
    }
    pids_.resize(world_.size());
    XYLEM_TRY(world_.all_gather(std::span<const std::int32_t>(&own, 1), std::span(pids_)).wait());
    for (int i = 0; i < 3; ++i) XYLEM_TRY(call(world_).wait());
    if (bench_.wait() != CudaBench::State::done) return failure(Code::internal, "no stream");
    // The victim dies only after all other ranks have finished the calls above.
    std::int32_t word = 0;
    if (rank_ != victim_) return world_.send(Buffer(&word, 1, DataType::int32), victim_).wait();
    for (std::uint32_t rank = 0; rank < world_.size(); ++rank) {
      if (rank == victim_) continue;
      XYLEM_TRY(world_.recv(Buffer(&word, 1, DataType::int32), rank).wait());
    }
    return {};
  }

  [[noreturn]] void die(int phase) {
    if (phase > 0) {
      const Pending pending = call(world_);
      for (int turn = 1; turn < phase; ++turn) (void)pending.test();
      ::kill(::getpid(), SIGKILL);
    }
    ::kill(::getpid(), SIGKILL);
    ::_exit(1);
  }

  std::string lose_victim() {
    const auto begin = Clock::now();
    Status status;
    // Some calls need no data from the victim at this point, and succeed. Repeats the call until it
    // fails.
    while (status) {
      const Pending pending = call(world_);
      if (bench_.wait() != CudaBench::State::done) return "the stream does not go on";
      status = pending.wait();
    }
    const double took = std::chrono::duration<double>(Clock::now() - begin).count();
    if (status.code() != Code::peer_lost) return "not peer_lost: " + status.to_string();
    if (status.peer() != victim_) return "another culprit: " + status.to_string();
    // On a mesh, devices of peers use the buffers.
    if (status.holds_buffers() && !is_mesh_) return "holds buffers: " + status.to_string();
    if (took > kPromise) return "late: " + std::to_string(took) + " s";
    return {};
  }

  /// Checks that calls with the victim fail, and that calls without the victim succeed.
  std::string go_on(const Communicator& rest) {
    for (std::uint32_t number = 1; number <= 5; ++number) {
      const Pending failing = call(world_);
      for (std::uint64_t i = 0; i < count_; ++i) bench_.before()[i] = word(rank_, number, i);
      const Buffer input(bench_.input(), count_, DataType::uint32, bench_.kind());
      const Buffer output(bench_.output(), count_, DataType::uint32, bench_.kind());
      bench_.produce(input.data, count_);
      const Work work = rest.on(bench_.stream()).all_reduce(input, output);
      bench_.consume(output.data, count_);
      if (bench_.wait() != CudaBench::State::done) return "the stream does not go on later";
      if (failing.wait().code() != Code::peer_lost) return "a later call did not fail";
      if (const Status status = work.wait(); !status) return "later: " + status.to_string();
      for (std::uint64_t i = 0; i < count_; ++i) {
        std::uint32_t sum = 0;
        for (std::uint32_t rank = 0; rank < world_.size(); ++rank) {
          if (rank != victim_) sum += word(rank, number, i);
        }
        if (bench_.after()[i] != sum) return "a wrong sum later";
      }
    }
    if (StandIn::get().calls("cuIpcOpenMemHandle_v2") == 0) return "no memory was opened";
    return StandIn::get().misuses() == 0 ? std::string() : StandIn::get().last_misuse();
  }

  static std::uint32_t word(std::uint32_t rank, std::uint32_t number, std::uint64_t i) {
    return static_cast<std::uint32_t>(1000 * number + 3 * i + rank);
  }

  /// Enqueues a producer, the call and a consumer on the stream.
  Pending call(const Communicator& comm) {
    const std::uint64_t all = comm.size() * count_;
    bench_.produce(bench_.input(), all);
    Pending pending = make_call(comm.on(bench_.stream()), all);
    bench_.consume(bench_.output(), all);
    return pending;
  }
  Pending make_call(const Communicator& comm, std::uint64_t all) const {
    const auto in = [&](std::uint64_t count) {
      return ConstBuffer(bench_.input(), count, DataType::uint32, bench_.kind());
    };
    const auto out = [&](std::uint64_t count) {
      return Buffer(bench_.output(), count, DataType::uint32, bench_.kind());
    };
    if (op_ == "all_reduce") return {comm.all_reduce(in(count_), out(count_))};
    if (op_ == "all_gather") return {comm.all_gather(in(count_), out(all))};
    if (op_ == "reduce_scatter") return {comm.reduce_scatter(in(all), out(count_))};
    if (op_ == "all_to_all") return {comm.all_to_all(in(all), out(all))};
    if (op_ == "broadcast") return {comm.broadcast(in(count_), out(count_), victim_)};
    const std::uint32_t ranks = comm.size();
    return {comm.send(in(count_), (rank_ + 1) % ranks),
            comm.recv(out(count_), (rank_ + ranks - 1) % ranks)};
  }

  const Communicator world_;
  const std::uint32_t rank_;
  const bool is_mesh_;
  const std::string op_;
  const std::uint32_t victim_;
  const std::uint64_t count_;
  CudaBench bench_;
  std::vector<std::int32_t> pids_;
};

int run(int argc, char** argv) {
  if (argc != 5) return 2;
  auto runtime = Runtime::create();
  if (!runtime) {
    std::printf("start: %s\n", runtime.status().to_string().c_str());
    return 1;
  }
  Survivor survivor(*runtime, argv[1], static_cast<std::uint32_t>(std::stoul(argv[2])),
                    std::stoul(argv[4]));
  const std::string wrong = survivor.run(std::stoi(argv[3]));
  if (!wrong.empty()) std::printf("rank %u: %s\n", runtime->rank(), wrong.c_str());
  return wrong.empty() ? 0 : 1;
}

}  // namespace
}  // namespace xylem::test

int main(int argc, char** argv) { return xylem::test::run(argc, argv); }
