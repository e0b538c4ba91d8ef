// SPDX-License-Identifier: Apache-2.0
//
// Averages a vector over all ranks: xylem run -n 2 -- example_all_reduce
#include <xylem/xylem.h>

#include <cstdio>
#include <vector>

int main() {
  auto runtime = xylem::Runtime::create();
  if (!runtime) {
    std::fprintf(stderr, "start: %s\n", runtime.status().to_string().c_str());
    return 1;
  }
  const xylem::Communicator world = runtime->world();

  std::vector<float> gradients(1 << 20, static_cast<float>(world.rank()));
  // In place: input and output are the same.
  const xylem::Status done = world.all_reduce(gradients, gradients, xylem::RedOp::avg).wait();
  if (!done) {
    std::fprintf(stderr, "all_reduce: %s\n", done.to_string().c_str());
    return 1;
  }
  std::printf("rank %u of %u: the average is %g\n", world.rank(), world.size(), gradients.back());
  const float average = static_cast<float>(world.size() - 1) / 2;
  return gradients.front() == average && gradients.back() == average ? 0 : 1;
}
