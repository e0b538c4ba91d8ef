// SPDX-License-Identifier: Apache-2.0
//
// A rank of death_test. It makes the same call many times, and the victim kills itself at a given
// phase of a given call. Each survivor checks that its Work soon fails with peer_lost naming the
// victim, and that nothing accesses its buffers afterwards.
//
//   death_rank OP VICTIM CALLS PHASE BYTES MEMORY
//
// PHASE is the moment at which the victim dies: 0 before the call, 1 right after submitting it, and
// n after n - 1 turns of progress. If MEMORY is "allocated", buffers come from xylem::allocate().
#include "support/buffer_allocator.h"
#include "xylem/xylem.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

namespace {

using xylem::Buffer;
using xylem::ConstBuffer;
using xylem::DataType;
using xylem::RedOp;
using xylem::Work;

using Values = std::vector<float, xylem::test::BufferAllocator<float>>;

struct Buffers {
  Values input, output;
};

/// The Works of one call. Only send_recv has a second Work, for its send.
struct Pending {
  Work work;
  Work send{};

  bool test() const { return work.test() && send.test(); }
  xylem::Status wait() const { return wait_all(work, send); }
};

Pending call(const std::string& op,
             const xylem::Communicator& comm,
             Buffers& buffers,
             std::size_t count) {
  const std::size_t n = comm.size();
  const auto in = [&](std::size_t elements) {
    return ConstBuffer(buffers.input.data(), elements, DataType::float32);
  };
  const auto out = [&](std::size_t elements) {
    return Buffer(buffers.output.data(), elements, DataType::float32);
  };
  const std::vector<std::uint64_t> counts(n, count);
  if (op == "all_reduce") return {comm.all_reduce(in(count), out(count))};
  if (op == "reduce") return {comm.reduce(in(count), out(count), RedOp::sum, 0)};
  if (op == "broadcast") return {comm.broadcast(in(count), out(count), 0)};
  if (op == "all_gather") return {comm.all_gather(in(count), out(n * count))};
  if (op == "all_gather_v") return {comm.all_gather_v(in(count), out(n * count), counts)};
  if (op == "reduce_scatter") return {comm.reduce_scatter(in(n * count), out(count))};
  if (op == "reduce_scatter_v") return {comm.reduce_scatter_v(in(n * count), out(count), counts)};
  if (op == "all_to_all") return {comm.all_to_all(in(n * count), out(n * count))};
  if (op == "all_to_all_v")
    return {comm.all_to_all_v(in(n * count), counts, out(n * count), counts)};
  if (op == "gather") return {comm.gather(in(count), out(n * count), 0)};
  if (op == "scatter") return {comm.scatter(in(n * count), out(count), 0)};
  if (op == "send_recv") {
    const auto rank = comm.rank(), size = comm.size();
    return {comm.recv(out(count), (rank + size - 1) % size),
            comm.send(in(count), (rank + 1) % size)};
  }
  return {comm.barrier()};
}

int fail(const char* what, const std::string& detail) {
  std::printf("%s: %s\n", what, detail.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  using xylem::test::BufferSource;
  if (argc != 7) return 2;
  const std::string op = argv[1];
  const auto victim = static_cast<std::uint32_t>(std::stoul(argv[2]));
  const int calls = std::stoi(argv[3]), phase = std::stoi(argv[4]);
  const std::size_t count = std::stoul(argv[5]) / sizeof(float);
  auto runtime = xylem::Runtime::create();
  if (!runtime) return fail("start", runtime.status().to_string());
  const auto world = runtime->world();
  BufferSource::of_thread =
      std::string(argv[6]) == "allocated" ? BufferSource::library : BufferSource::heap;
  Buffers buffers{Values(world.size() * count, 1.0F), Values(world.size() * count)};
  const bool dies = runtime->rank() == victim;
  // When this barrier ends, all ranks have started.
  xylem::Status status = world.barrier().wait();
  for (int i = 0; i < calls && status; ++i) status = call(op, world, buffers, count).wait();
  if (dies && phase == 0) kill(getpid(), SIGKILL);
  const auto begin = std::chrono::steady_clock::now();
  if (status) {
    const Pending work = call(op, world, buffers, count);
    if (dies) {
      for (int turn = 1; turn < phase; ++turn) (void)work.test();
      kill(getpid(), SIGKILL);
    }
    status = work.wait();
  }
  // Some calls need no data from the victim at this point, and succeed. Repeats the call until it
  // fails.
  while (status) status = call(op, world, buffers, count).wait();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (status.code() != xylem::Code::peer_lost) return fail("not peer_lost", status.to_string());
  if (status.peer() != victim) return fail("another culprit", status.to_string());
  if (seconds > 2.0) return fail("late", std::to_string(seconds));
  const float mark = -7.0F;
  std::fill(buffers.input.begin(), buffers.input.end(), mark);
  std::fill(buffers.output.begin(), buffers.output.end(), mark);
  (void)runtime->shutdown();
  const auto untouched = [mark](float x) { return x == mark; };
  if (!std::all_of(buffers.output.begin(), buffers.output.end(), untouched))
    return fail("buffer", "written after the end");
  std::printf("ok after %.3f s\n", seconds);
  return 0;
}
