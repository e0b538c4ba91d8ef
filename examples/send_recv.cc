// SPDX-License-Identifier: Apache-2.0
//
// Passes a token once around a ring of ranks: xylem run -n 2 -- example_send_recv
#include <xylem/xylem.h>

#include <cstdint>
#include <cstdio>
#include <vector>

int main() {
  auto runtime = xylem::Runtime::create();
  if (!runtime) {
    std::fprintf(stderr, "start: %s\n", runtime.status().to_string().c_str());
    return 1;
  }
  const xylem::Communicator world = runtime->world();
  const std::uint32_t next = (world.rank() + 1) % world.size();
  const std::uint32_t previous = (world.rank() + world.size() - 1) % world.size();

  const std::vector<std::uint32_t> token(1000, world.rank());
  std::vector<std::uint32_t> got(token.size());
  // Neither call waits for the other rank. The receive is posted first, since a message that
  // arrives after its receive was posted may need one copy less.
  const xylem::Work receive = world.recv(got, previous);
  const xylem::Work send = world.send(token, next);
  const xylem::Status done = xylem::wait_all(receive, send);
  if (!done) {
    std::fprintf(stderr, "send and receive: %s\n", done.to_string().c_str());
    return 1;
  }
  std::printf("rank %u: got rank %u's token\n", world.rank(), got.back());
  return got.back() == previous ? 0 : 1;
}
