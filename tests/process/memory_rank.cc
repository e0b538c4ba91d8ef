// SPDX-License-Identifier: Apache-2.0
//
// A rank of memory_test. It makes one call, which the last rank makes late. Until then the last
// rank waits for another message, so its transports continue to receive. Before the call, all
// buffers are written. Each rank prints how much the peak of its resident memory exceeds its
// resident memory before the call. With a limit, the address space of the process may grow by this
// limit (as with `ulimit -v`), and the call may also end with `exhausted`.
//
//   memory_rank OPERATION BYTES [MILLISECONDS OF LATENESS [MIB OF LIMIT]]
#include "xylem/xylem.h"

#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace {

using xylem::Buffer;
using xylem::ConstBuffer;
using xylem::DataType;
using xylem::Status;

constexpr std::uint32_t kNeverSent = 7, kSent = 8;

/// A value of /proc/self/status, in MiB.
double status_of(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(name, 0) == 0)
      return std::strtod(line.c_str() + name.size() + 1, nullptr) / 1024;
  }
  return -1;
}

/// Resets VmHWM, the peak of resident memory, to the current value.
void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

void limit_memory(double mib) {
  const auto bytes = static_cast<rlim_t>((status_of("VmSize:") + mib) * 1024 * 1024);
  const rlimit limit{bytes, bytes};
  if (::setrlimit(RLIMIT_AS, &limit) != 0) std::abort();
}

struct Buffers {
  std::vector<std::uint8_t> input, output;

  ConstBuffer in(std::size_t count) const { return {input.data(), count, DataType::uint8}; }
  Buffer out(std::size_t count) { return {output.data(), count, DataType::uint8}; }
};

/// All other ranks send many messages of 8 bytes or 4 KiB to the last rank.
Status exchange_messages(const xylem::Communicator& world, Buffers& buffers, std::size_t bytes) {
  const std::uint32_t last = world.size() - 1;
  const auto size_of = [](std::size_t i) { return i % 8 == 0 ? std::size_t{4096} : 8; };
  std::size_t at = 0;
  for (std::size_t i = 0; at < bytes; at += size_of(i++)) {
    if (world.rank() != last) {
      if (Status sent = world.send(buffers.in(size_of(i)), last, kSent).wait(); !sent) return sent;
      continue;
    }
    for (std::uint32_t from = 0; from < last; ++from) {
      const Status got = world.recv(buffers.out(size_of(i)), from, kSent).wait();
      if (!got) return got;
    }
  }
  return Status::ok();
}

Status call(const std::string& name,
            const xylem::Communicator& world,
            Buffers& buffers,
            std::size_t bytes) {
  const std::size_t part = bytes / world.size();
  if (name == "broadcast") return world.broadcast(buffers.in(bytes), buffers.out(bytes), 0).wait();
  if (name == "all_reduce") return world.all_reduce(buffers.in(bytes), buffers.out(bytes)).wait();
  if (name == "scatter") return world.scatter(buffers.in(bytes), buffers.out(part), 0).wait();
  if (name == "all_to_all") {
    return world.all_to_all(buffers.in(part * world.size()), buffers.out(part * world.size()))
        .wait();
  }
  if (name == "broadcasts") {
    // The root does not wait for the late rank, so it gets as far ahead as the transport allows.
    for (std::size_t at = 0; at < bytes; at += 2048) {
      const Status ended = world.broadcast(buffers.in(2048), buffers.out(2048), 0).wait();
      if (!ended) return ended;
    }
    return Status::ok();
  }
  return exchange_messages(world, buffers, bytes);
}

int fail(const xylem::Status& why) {
  std::printf("%s\n", why.to_string().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 5) return 2;
  const std::chrono::milliseconds late(argc > 3 ? std::strtol(argv[3], nullptr, 10) : 1500);
  auto runtime = xylem::Runtime::create();
  if (!runtime) return fail(runtime.status());
  const auto world = runtime->world();
  const std::size_t bytes = std::strtoull(argv[2], nullptr, 10);
  Buffers buffers{std::vector<std::uint8_t>(bytes, 1), std::vector<std::uint8_t>(bytes, 2)};
  if (Status begun = world.barrier().wait(); !begun) return fail(begun);
  auto apart = world.duplicate();
  if (!apart) return fail(apart.status());
  // When this barrier ends, all ranks have started. A later error, or the exit of a rank, cannot
  // make a start fail.
  auto meeting = world.duplicate();
  if (!meeting) return fail(meeting.status());
  if (Status met = meeting->barrier().wait(); !met) return fail(met);
  const double before = status_of("VmRSS:");
  reset_peak();
  if (argc == 5) limit_memory(std::strtod(argv[4], nullptr));
  if (world.rank() + 1 == world.size()) {
    std::uint8_t nothing = 0;
    const auto never = apart->recv(Buffer(&nothing, 1, DataType::uint8), 0, kNeverSent);
    (void)never.wait_for(late);
  }
  const Status ended = call(argv[1], world, buffers, bytes);
  const double peak = status_of("VmHWM:") - before, after = status_of("VmRSS:") - before;
  std::printf("%s; %.1f MiB more at the peak, %.1f after, than %.1f\n", ended.to_string().c_str(),
              peak, after, before);
  (void)apart->abort("the test is over");
  (void)world.barrier().wait();
  const bool is_well = ended || (argc == 5 && ended.code() == xylem::Code::exhausted);
  return is_well && peak <= 64 && before > 0 ? 0 : 1;
}
