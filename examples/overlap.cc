// SPDX-License-Identifier: Apache-2.0
//
// Computes while it communicates: each layer's gradients are reduced while the next layer's are
// computed. xylem run -n 2 -- example_overlap
#include <xylem/xylem.h>

#include <algorithm>
#include <cstdio>
#include <vector>

namespace {

/// Stands for the backward pass of one layer.
void compute(std::vector<float>& gradients, std::size_t layer) {
  std::ranges::fill(gradients, static_cast<float>(layer));
}

}  // namespace

int main() {
  auto runtime = xylem::Runtime::create();
  if (!runtime) {
    std::fprintf(stderr, "start: %s\n", runtime.status().to_string().c_str());
    return 1;
  }
  const xylem::Communicator world = runtime->world();

  std::vector<std::vector<float>> layers(8, std::vector<float>(1 << 18));
  std::vector<xylem::Work> under_way;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    compute(layers[layer], layer);
    std::vector<float>& gradients = layers[layer];  // not accessed until its work has ended
    under_way.push_back(world.all_reduce(gradients, gradients));
  }
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    if (const xylem::Status done = under_way[layer].wait(); !done) {
      std::fprintf(stderr, "layer %zu: %s\n", layer, done.to_string().c_str());
      return 1;
    }
    if (layers[layer].back() != static_cast<float>(layer * world.size())) return 1;
  }
  std::printf("rank %u: %zu layers are summed\n", world.rank(), layers.size());
  return 0;
}
