// SPDX-License-Identifier: Apache-2.0
//
// A rank of a job that other processes disturb. It makes all_reduces with the other ranks until a
// file exists, and checks each sum.
//
//   hostile_rank FILE
//
// It prints:
//
//   first                      once, after the first call
//   going 12345                repeatedly: the number of calls that have ended
#include "xylem/base/clock.h"
#include "xylem/xylem.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

namespace {

using xylem::Clock;

int fail(const char* what, const std::string& detail) {
  std::printf("%s: %s\n", what, detail.c_str());
  return 1;
}

/// Makes one all_reduce and checks the sums. The inputs depend on rank, element and call.
xylem::Status add_up(const xylem::Communicator& world, unsigned call, std::size_t count) {
  std::vector<float> in(count);
  std::vector<float> out(count);
  const auto number = [call](std::uint32_t rank, std::size_t at) {
    return static_cast<float>((rank + 1) * (1 + (at + call) % 97));
  };
  for (std::size_t at = 0; at < count; ++at) in[at] = number(world.rank(), at);
  const auto status = world.all_reduce(std::span<const float>(in), std::span(out)).wait();
  if (!status) return status;
  for (std::size_t at = 0; at < count; ++at) {
    float expected = 0;
    for (std::uint32_t rank = 0; rank < world.size(); ++rank) expected += number(rank, at);
    if (out[at] != expected) return xylem::failure(xylem::Code::internal, "wrong sum");
  }
  return {};
}

/// True if any rank has found the file. All ranks get the same result, so all end after the same
/// call.
xylem::Result<bool> is_over(const xylem::Communicator& world, const char* file) {
  const float mine = ::access(file, F_OK) == 0 ? 1 : 0;
  float any = 0;
  const auto status = world
                          .all_reduce(std::span<const float>(&mine, 1), std::span<float>(&any, 1),
                                      xylem::RedOp::max)
                          .wait();
  if (!status) return status;
  return any > 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  constexpr auto kLimit = std::chrono::seconds(60);
  constexpr auto kPeriod = std::chrono::milliseconds(100);
  auto runtime = xylem::Runtime::create();
  if (!runtime) return fail("start", runtime.status().to_string());
  const auto world = runtime->world();
  const auto deadline = xylem::Deadline::after(kLimit);
  Clock::time_point next_line;
  for (unsigned call = 0; !deadline.passed(); ++call) {
    // Small and large sums use different paths in the transport.
    const std::size_t count = call % 10 == 9 ? 100'000 : 100;
    if (const auto status = add_up(world, call, count); !status)
      return fail("sum", status.to_string());
    if (call == 0) std::printf("first\n");
    if (const auto now = Clock::now(); now >= next_line) {
      next_line = now + kPeriod;
      std::printf("going %u\n", call);
      std::fflush(stdout);
    }
    const auto over = is_over(world, argv[1]);
    if (!over) return fail("end", over.status().to_string());
    if (*over) return 0;
  }
  return fail("end", "the file did not appear");
}
